"""The options that say which method to use and how: shared by every command that trains or would."""

from pathlib import Path
from typing import Annotated

import typer

ModelOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="The method; `rankformer models` lists them. Unsaid: rankformer.")
]
ConfigOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="TOML file with model, seed, settings and data.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, over the file's; may be repeated."),
]
ThreadsOption = Annotated[int | None, typer.Option(min=1, metavar="N", help="Threads on the CPU; all cores if unsaid.")]
