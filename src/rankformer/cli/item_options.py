"""The flags for items: their attributes, and what lists may hold; defined once for every command that has them."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rankformer.cli.output import option, with_flags
from rankformer.errors import DataError

if TYPE_CHECKING:
    from rankformer.data.items import Items
    from rankformer.scoring.recommender import Recommender

_PANEL = "What lists may hold"


def _filter(metavar: str, help: str, *names: str) -> Any:
    return option(metavar, help, *names, rich_help_panel=_PANEL)


ItemsOption = Annotated[
    Path | None, option("FILE", "Titles and attributes of items: csv, tsv, parquet or jsonl with an item id column.")
]
# argument -> annotation; each is None, or empty, by default
_FLAGS: dict[str, Any] = {
    "where": Annotated[str | None, _filter("EXPR", "Items must meet this: \"category = 'shoes' and price < 50\".")],
    "allow": Annotated[Path | None, _filter("FILE", "List only these items: one id per line, or a table.")],
    "block": Annotated[Path | None, _filter("FILE", "Never list these items: one id per line, or a table.")],
    "at_most": Annotated[
        list[str] | None, _filter("N:ATTRIBUTE", "At most N items of one value, such as 2:brand; may be repeated.")
    ],
    "boost": Annotated[
        list[str] | None,
        _filter("W:EXPR", "Add W standard deviations to the scores, W < 0 buries: 0.5:on_sale; may be repeated."),
    ],
    "no_cold": Annotated[bool, _filter("", "Leave out items without interactions.", "--no-cold")],
    "items": Annotated[
        Path | None, _filter("FILE", "Titles and attributes in place of those in RUN, as for `rankformer train`.")
    ],
}


def takes_filters(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with the flags above, which reach it as its argument `filters`."""
    return with_flags(command, "filters", _FLAGS)


def apply_filters(recommender: "Recommender", filters: dict[str, Any]) -> "tuple[Recommender, dict[str, Any]]":
    """Return the recommender with the items of --items, and the filters as `Recommender.recommend` takes them."""
    from rankformer.data.items import read_item_ids
    from rankformer.scoring.filters import parse_rule

    if filters["items"] is not None:
        recommender = recommender.with_items(read_items(filters["items"]))
    ids = recommender.catalogue
    lists = {name: filters[name] for name in ("allow", "block") if filters[name] is not None}
    found: dict[str, Any] = {name: read_item_ids(path, ids) for name, path in lists.items()}
    found |= {"where": filters["where"], "include_cold": not filters["no_cold"]}
    found["at_most"] = dict(parse_rule("--at-most", text, int) for text in filters["at_most"] or ())
    found["boost"] = dict(parse_rule("--boost", text, float) for text in filters["boost"] or ())
    return recommender, found


def read_items(path: Path, item: str | None = None, title: str | None = None) -> "Items":
    """Return the items in a file; `item` and `title` are the columns of the log, which the file may call otherwise."""
    from rankformer.data.items import Items

    try:
        return Items.read(path, item=item, title=title)
    except DataError:
        if item is None and title is None:
            raise
        return Items.read(path)
