"""What `make docs` adds to the pages in docs/: reference pages made from the code, and the project's own files.

MkDocs calls the `on_...` functions (https://www.mkdocs.org/user-guide/plugins/#events).
"""

import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from rankformer.cli.main import app
from rankformer.models.facts import built_in_models

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "rankformer"
# Files of the project that are pages of the site.
FILES = {
    "RESULTS.md": "results.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
NO_REFERENCE = {"cli"}  # packages that are described elsewhere
REMOTE_WORKER = "https://unpkg.com/iframe-worker/shim"
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add a page per package to the navigation."""
    for entry in config.nav or []:
        if "Reference" in entry:
            entry["Reference"].extend({f"rankformer.{name}": f"reference/{name}.md"} for name in packages())
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages and the pictures of the results."""
    pages = {"reference/cli.md": cli_page(), "reference/api.md": api_page()}
    pages |= {f"reference/{name}.md": package_page(name) for name in packages()}
    pages |= {page: (ROOT / name).read_text(encoding="utf-8") for name, page in FILES.items()}
    for notebook in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        pages[f"notebooks/{notebook.stem}.md"] = notebook_page(notebook)
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    for picture in re.findall(r"!\[[^\]]*\]\((experiments/[^)]*)\)", pages["results.md"]):
        files.append(File.generated(config, picture, abs_src_path=str(ROOT / picture)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links at pages of the site; what is only in the repository is named, not linked."""
    source = page.file.src_uri
    of_project = {target: name for name, target in FILES.items()}.get(source)
    folder = posixpath.dirname(of_project or f"docs/{source}")

    def rewritten(found: re.Match[str]) -> str:
        mark, text, target, anchor = found.groups()
        if "://" in target or target.startswith("mailto:"):
            return found[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        inside = FILES.get(path, path.removeprefix("docs/"))
        if files.get_file_from_path(inside) is not None:
            return f"{mark}[{text}]({posixpath.relpath(inside, posixpath.dirname(source) or '.')}{anchor or ''})"
        if (ROOT / path).exists() and not path.startswith("docs/"):
            return text if text.startswith("`") else f"{text} (`{path}`)" if path not in text else f"`{path}`"
        return found[0]  # MkDocs says that it leads nowhere

    parts = re.split(r"(^```.*?^```$|`[^`\n]+`)", markdown, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if index % 2 else LINK.sub(rewritten, part) for index, part in enumerate(parts))


def on_post_build(config: MkDocsConfig) -> None:
    """Load nothing from elsewhere: the theme's offline search would fetch the worker that we have ourselves."""
    site = Path(config.site_dir)
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        worker = posixpath.relpath("javascripts/worker.js", page.parent.relative_to(site).as_posix())
        page.write_text(text.replace(REMOTE_WORKER, worker), encoding="utf-8")
        if re.search(r"<(?:script|link|img)[^>]+(?:src|href)=\"?https?:", text.replace(REMOTE_WORKER, "")):
            raise PluginError(f"{page.name} loads something from elsewhere")


def packages() -> list[str]:
    """Return the names of the packages that have a page of their own."""
    return sorted(path.parent.name for path in SOURCE.glob("*/__init__.py") if path.parent.name not in NO_REFERENCE)


def modules(name: str) -> Iterator[str]:
    """Yield the public modules of a package, itself first."""
    folder = SOURCE / name
    for path in sorted(folder.rglob("*.py"), key=lambda path: (path.name != "__init__.py", path)):
        dotted = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
        if not any(part.startswith("_") for part in dotted.split(".")):
            yield dotted


def api_page() -> str:
    """Return the page of the public names: what `from rankformer import ...` offers."""
    lines = ["# Python", "", "What `from rankformer import ...` offers; every package has a page of its own.", ""]
    lines += ["| model | name | |", "| --- | --- | --- |"]
    for model in built_in_models():
        lines.append(
            f"| [`{model.class_name}`][{model.module}.{model.class_name}] | `{model.name}` | {model.summary} |"
        )
    lines += ["", "Every model has the methods of `Model`:", ""]
    public = ["models.base.Model", "models.registry.load_model", "data.interactions.Interactions", "data.items.Items"]
    public += ["evaluation.evaluator.evaluate", "evaluation.evaluator.Evaluation", "graph.bipartite.BipartiteGraph"]
    public += ["scoring.embeddings.Embeddings", "errors"]
    lines += [f"- [`{name.rpartition('.')[2]}`][rankformer.{name}]" for name in public[:-1]]
    lines += ["", "::: rankformer.errors", "", "::: rankformer.settings", ""]
    return "\n".join(lines)


def package_page(name: str) -> str:
    """Return the page of one package, each module a section."""
    exports = "__all__" in (SOURCE / name / "__init__.py").read_text(encoding="utf-8")  # shown where they are defined
    first = "    options:\n      members: false\n" if exports else ""
    package, *others = modules(name)
    return "\n".join([f"# rankformer.{name}", "", f"::: {package}\n{first}", *(f"::: {each}\n" for each in others)])


def cli_page() -> str:
    """Return the page of the command line, from the application itself."""
    lines = ["# Command line", "", "As `rankformer --help` and `rankformer COMMAND --help` say it.", ""]
    lines += ["`rankformer --install-completion` sets up completion for your shell (bash, zsh, fish).", ""]
    for path, command in commands("rankformer", typer.main.get_command(app)):
        lines += [f"## {path.removeprefix('rankformer ')}", "", (command.help or "").replace("<", "&lt;"), ""]
        with typer.Context(command, info_name=path) as context:  # type: ignore[arg-type]
            lines += ["```text", " ".join(command.get_usage(context).split()).removeprefix("Usage: "), "```", ""]
        rows = [row(parameter) for parameter in command.params if not getattr(parameter, "hidden", False)]
        lines += ["| option | | default |", "| --- | --- | --- |", *rows, ""] if rows else []
        examples = [line for line in (command.epilog or "").split("\n\n") if line.startswith("rankformer ")]
        lines += ["```sh", *examples, "```", ""] if examples else []
    return "\n".join(lines)


def commands(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Yield the path and the command of every leaf below a command."""
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, below in command.commands.items():
        yield from commands(f"{path} {name}", below)


def row(parameter: Any) -> str:
    """Return the row of one option or argument."""
    option = parameter.param_type_name == "option"
    names = ", ".join([*parameter.opts, *parameter.secondary_opts]) if option else ""
    label = f"{names} {parameter.metavar or ''}".strip() if option else parameter.metavar or parameter.name.upper()
    default = parameter.default
    shown = "" if default is None or default is False or callable(default) or not option else f"`{default}`"
    text = " ".join((getattr(parameter, "help", None) or "").split()).replace("<", "&lt;")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in (f"`{label}`", text, shown)) + " |"


def notebook_page(path: Path) -> str:
    """Return a notebook as a page: its text, its code and the link to the file."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    parts = []
    for cell in cells:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    parts.insert(1, f"[This page as a notebook]({path.name})")
    return "\n\n".join(parts) + "\n"
