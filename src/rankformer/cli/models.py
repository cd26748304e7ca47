"""`rankformer models`: every method in one line, or one method with its hyperparameters."""

import inspect
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer

from rankformer.cli.output import JsonFlag, show, show_json, show_table


def models(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="One method, with its hyperparameters.")] = None,
    json: JsonFlag = False,
) -> None:
    """List the methods, or show one with its paper and its hyperparameters.

    Hyperparameters are changed by `rankformer train --set KEY=VALUE`, or in the file given to --config.

    Examples:
        rankformer models
        rankformer models rankformer --json
    """
    if name is not None:
        _show_model(name, json)
        return
    from importlib.metadata import entry_points

    from rankformer.models.facts import built_in_models

    methods = [(each.name, each.title, each.summary) for each in built_in_models()]
    methods += [(each.name, each.name, f"plug-in {each.value}") for each in entry_points(group="rankformer.models")]
    if json:
        show_json([dict(zip(("name", "title", "summary"), method, strict=True)) for method in methods])
        return
    show_table(("name", "what it is"), [(name, summary) for name, _, summary in methods], one_line=True)
    show("rankformer models NAME shows the hyperparameters of one")


def _show_model(name: str, json: bool) -> None:
    from rankformer.models.registry import model_class

    method = model_class(name)
    summary = _one_line(inspect.getdoc(method))
    settings = {
        key: {
            "default": field.default,
            "type": _type_name(field.annotation),
            "description": _one_line(field.description),
        }
        for key, field in method.settings_class.hyperparameter_fields().items()
    }
    if json:
        facts = {name: getattr(method, name) for name in ("name", "title", "paper", "uses_weights")}
        show_json({**facts, "summary": summary, "settings": settings})
        return
    weights = "weights of interactions count" if method.uses_weights else "weights of interactions are ignored"
    show(f"{method.name}: {summary}", method.paper, weights)
    rows = [(key, _shown(row["default"]), row["type"], row["description"]) for key, row in settings.items()]
    show_table(("hyperparameter", "default", "type", "meaning"), rows)


def _type_name(annotation: Any) -> str:
    """Return a type as a user would write it: `int`, `int or none`, `push or none or pull`."""
    if get_origin(annotation) is Literal:
        return " or ".join(str(choice) for choice in get_args(annotation))
    if get_origin(annotation) in (Union, UnionType):
        return " or ".join(_type_name(choice) for choice in get_args(annotation))
    names = {str: "string", bool: "true or false", NoneType: "none"}
    return names.get(annotation, getattr(annotation, "__name__", str(annotation)))


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())


def _shown(value: Any) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
