"""`rankformer models`: every method in one line, or one method with its hyperparameters."""

import inspect
from importlib.metadata import entry_points
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
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="One method, with its hyperparameters.")] = None,
    json: JsonFlag = False,
) -> None:
    """List the methods, or show one with its paper and its hyperparameters.

    Hyperparameters are changed by `rankformer train --set KEY=VALUE`, or in the file given to --config.
    """
    if name is not None:
        from rankformer.models.registry import model_class

        _show_model(_description_of(model_class(name)), json)
        return
    from rankformer.models.facts import built_in_models

    methods = [{"name": each.name, "title": each.title, "summary": each.summary} for each in built_in_models()]
    methods += [
        {"name": point.name, "title": point.name, "summary": f"plug-in {point.value}"}
        for point in entry_points(group="rankformer.models")
    ]
    if json:
        show_json(methods)
        return
    show_table(("name", "what it is"), [(each["name"], each["summary"]) for each in methods])
    show("rankformer models NAME shows the hyperparameters of one")


def _description_of(method: "type[Model]") -> dict[str, Any]:
    return {
        "name": method.name,
        "title": method.title,
        "summary": " ".join((inspect.getdoc(method) or "").split()),
        "paper": method.paper,
        "settings": {
            key: {
                "default": field.default,
                "type": _type_name(field.annotation),
                "description": field.description or "",
            }
            for key, field in method.settings_class.hyperparameter_fields().items()
        },
    }


def _type_name(annotation: Any) -> str:
    """Return a type as a user would write it: `int`, `int or none`, `push or none or pull`."""
    if get_origin(annotation) is Literal:
        return " or ".join(str(choice) for choice in get_args(annotation))
    if get_origin(annotation) in (Union, UnionType):
        return " or ".join(_type_name(choice) for choice in get_args(annotation))
    names = {str: "string", bool: "true or false", NoneType: "none"}
    return names.get(annotation, getattr(annotation, "__name__", str(annotation)))


def _show_model(method: dict[str, Any], json: bool) -> None:
    if json:
        show_json(method)
        return
    show(f"{method['name']}: {method['summary']}", method["paper"])
    show_table(
        ("hyperparameter", "default", "type", "meaning"),
        [(key, _shown(row["default"]), row["type"], row["description"]) for key, row in method["settings"].items()],
    )


def _shown(value: Any) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
