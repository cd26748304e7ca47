"""What the commands that answer share: how histories are given, and how lists and their gaps are shown."""

from typing import TYPE_CHECKING, Annotated, Any

from rankformer.cli.output import option, show_note, show_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rankformer.data.id_map import IdMap
    from rankformer.scoring.recommendations import Recommendations

Length = Annotated[int, option("K", "Length of a list; shorter where fewer items remain.", "-k")]


def parse_history(ids: "IdMap", text: str) -> list[Any]:
    """Return the raw item ids in a string with commas between them; a comma inside an id is doubled."""
    parts = (part.replace("\0", ",").strip() for part in text.replace(",,", "\0").split(","))
    return [ids.parse(part) for part in parts if part]


def rows_of(lists: "Recommendations") -> list[dict[str, Any]]:
    """Return one dictionary per item of the lists, with what is known of it, and who has a fallback."""
    always, whom = ("user_id", "item_id", "similar_item_id", "score", "rank"), set(lists.fallbacks)
    return [
        {name: value for name, value in row.items() if name in always or value is not None}
        | ({"fallback": "popularity"} if row.get("user_id") in whom else {})
        for row in lists.to_dicts()
    ]


def show_ranking(rows: list[dict[str, Any]], item: str, title: str) -> None:
    """Print one list as a table; `item` is the key of the listed item."""
    keys = {"rank": "rank", "item": item, "title": "title", "score": "score"}
    own = ("user_id", "item_id", *keys.values())
    keys |= {name: name for row in rows for name in row if name not in own}
    headings = [heading for heading, key in keys.items() if any(key in row for row in rows)]
    cells = [[row.get(keys[heading]) for heading in headings] for row in rows]
    show_table(headings, cells, title=title, numbers=("rank", "score"))


def note_left_out(members: "Sequence[str]") -> None:
    """Say which members of a blend have no part in an answer."""
    if members:
        show_note(f"without {', '.join(members)}: {'they' if members[1:] else 'it'} cannot score new users")
