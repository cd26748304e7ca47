"""`rankformer export`: the embeddings of a run for other programs."""

from pathlib import Path
from typing import Annotated

from rankformer.cli.evaluate import RunArgument
from rankformer.cli.model_options import ThreadsOption
from rankformer.cli.output import JsonFlag, option, show, show_json, show_note
from rankformer.cli.progress import busy
from rankformer.errors import ConfigError
from rankformer.export import TARGETS


def export(
    run: RunArgument,
    to: Annotated[str, option("|".join(TARGETS), "Form of the export.")],
    out: Annotated[Path, option("PATH", "Folder to make; for pgvector a file, or - for stdout.")],
    overwrite: Annotated[bool, option("", "Replace an older export at PATH.", "--overwrite")] = False,
    prefix: Annotated[
        str | None, option("TEXT", "pgvector, redis: prefix of the names, by default rankformer_.")
    ] = None,
    dsn: Annotated[str | None, option("DSN", "pgvector: also try the export on this server, leaving no trace.")] = None,
    threads: ThreadsOption = None,
    json: JsonFlag = False,
) -> None:
    """Write the embeddings, ids and titles of RUN for other programs, with metadata that say what they are.

    The score of a user and an item is the inner product of their embeddings. What was written is read back, and the
    best items of 100 users must be the run's own; otherwise nothing is kept.

    Examples:
        rankformer export runs/demo --to parquet --out vectors
        rankformer export runs/demo --to faiss --out index --overwrite
        rankformer export runs/demo --to pgvector --out - | psql -d shop
    """
    from rankformer.export.exporter import export_run, make_target

    to_stdout = str(out) == "-"
    if to_stdout and json:
        raise ConfigError("--json and --out - both want stdout; write to a file to have the JSON")
    target = make_target(to, prefix=prefix, dsn=dsn)
    with busy("exporting"):
        metadata, test = export_run(run, target, None if to_stdout else out, overwrite)
    if json:
        show_json({"out": str(out), "metadata": metadata, "self_test": test._asdict()})
        return
    line = (
        f"exported {metadata['num_users']:,} users and {metadata['num_items']:,} items of dimension "
        f"{metadata['dimension']} to {'stdout' if to_stdout else out}; "
        f"the best {test.k} items of {test.users} users are the run's own (by {', '.join(test.searches)})"
    )
    show_note(line, "done") if to_stdout else show(line)
