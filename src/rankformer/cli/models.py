"""`rankformer models`: every method with its paper and its settings."""

from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import typer

from rankformer.cli.output import JsonFlag, help_of, show, show_json, show_table

if TYPE_CHECKING:
    from rankformer.models.base import Model

EXAMPLES = """Examples:

rankformer models

rankformer models rankformer --json
"""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(name="models", help=help_of(models), epilog=EXAMPLES)(models)


def models(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="One method; all of them if unsaid.")] = None,
    json: JsonFlag = False,
) -> None:
    """List the methods, each with its paper and its settings.

    Settings are changed by `rankformer train --set KEY=VALUE`, or in the file given to --config.
    """
    from rankformer.models.registry import MODELS, model_class

    chosen = [model_class(name)] if name is not None else list(MODELS.values())
    described = [_description_of(method) for method in chosen]
    if json:
        show_json(described)
        return
    for method in described:
        _show_model(method)


def _description_of(method: "type[Model]") -> dict[str, Any]:
    return {
        "name": method.name,
        "paper": method.paper,
        "settings": {
            key: {
                "default": field.default,
                "type": _type_name(field.annotation),
                "description": field.description or "",
            }
            for key, field in method.settings_class.model_fields.items()
        },
    }


def _type_name(annotation: Any) -> str:
    """Return a type as a user would write it: `int`, `int or none`, `push or none or pull`."""
    if get_origin(annotation) is Literal:
        return " or ".join(str(choice) for choice in get_args(annotation))
    if get_origin(annotation) in (Union, UnionType):
        return " or ".join(_type_name(choice) for choice in get_args(annotation))
    names = {str: "text", bool: "true or false", NoneType: "none"}
    return names.get(annotation, getattr(annotation, "__name__", str(annotation)))


def _show_model(method: dict[str, Any]) -> None:
    show(method["name"], f"  {method['paper']}")
    if not method["settings"]:
        show("  no settings", "")
        return
    show_table(
        ("setting", "default", "type", "meaning"),
        [(key, _shown(row["default"]), row["type"], row["description"]) for key, row in method["settings"].items()],
    )


def _shown(value: Any) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
