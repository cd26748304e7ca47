"""`rankformer recommend`: ranked lists from a run."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankformer.cli.evaluate import RunArgument
from rankformer.cli.output import JsonFlag, help_of, show, show_json, show_note, show_table
from rankformer.cli.progress import busy
from rankformer.errors import ConfigError, DataError

if TYPE_CHECKING:
    from rankformer.data.id_map import IdMap
    from rankformer.scoring.recommendations import Recommendations

EXAMPLES = """Examples:

rankformer recommend runs/demo --user mira-001 --user otto-002 -k 5

rankformer recommend runs/demo --history book-020,book-037

rankformer recommend runs/demo --users ids.txt --json

rankformer recommend runs/demo --all -k 20 --out lists.parquet
"""

Length = Annotated[int, typer.Option("-k", metavar="K", help="Length of a list; shorter where fewer items remain.")]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(name="recommend", help=help_of(recommend), epilog=EXAMPLES)(recommend)


def recommend(
    run: RunArgument,
    user: Annotated[list[str] | None, typer.Option(metavar="ID", help="A user; may be repeated.")] = None,
    history: Annotated[
        list[str] | None,
        typer.Option(metavar="ID,ID", help="Items of a new user; repeat it for more new users."),
    ] = None,
    users: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Text file with one user id per line; - reads stdin.")
    ] = None,
    everyone: Annotated[bool, typer.Option("--all", metavar="", help="Every user of the training data.")] = False,
    k: Length = 10,
    include_seen: Annotated[
        bool, typer.Option("--include-seen", metavar="", help="Also list items that the user already has.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write to a csv, tsv, parquet or jsonl file instead.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """List the items that RUN ranks highest for users.

    Say for whom in exactly one way: --user, --history, --users or --all. Ids are those of the training data, whatever
    their type; within --history a comma that belongs to an id is doubled.
    """
    from rankformer.data.writers import check_writable
    from rankformer.runs.saved import load_run

    if sum((bool(user), bool(history), users is not None, everyone)) != 1:
        raise ConfigError(
            "say for whom in exactly one way: --user ID (may be repeated), --history ID,ID, --users FILE or --all"
        )
    if out is not None:
        check_writable(out)
    recommender = load_run(run).recommender
    asked: list[Any] | None
    with busy("ranking"):
        if history:
            histories = dict(zip(_names_of(history), histories_of(recommender.item_ids, history), strict=True))
            asked = list(histories)
            lists = recommender.recommend_histories(histories, k, include_seen=include_seen)
        else:
            asked = None if everyone else _raw_ids(recommender.user_ids, user or _lines_of(users))
            lists = recommender.recommend(asked, k, include_seen=include_seen)
    _note_gaps(lists)
    if out is not None:
        _write(lists, out, json)
    elif json:
        show_json({"recommendations": rows_of(lists), **_gaps_of(lists)})
    else:
        _show_lists(lists, recommender.user_ids.ids.to_pylist() if asked is None else asked)


def rows_of(lists: "Recommendations") -> list[dict[str, Any]]:
    """Return one dictionary per item of the lists, with a title only where one is known."""
    return [
        {name: value for name, value in row.items() if name != "title" or value is not None} for row in lists.to_dicts()
    ]


def show_ranking(rows: list[dict[str, Any]], item: str, title: str) -> None:
    """Print one list as a table; `item` is the key of the listed item."""
    titled = any(row.get("title") is not None for row in rows)
    headings = ("rank", "item", *(["title"] if titled else []), "score")
    cells = [[row["rank"], row[item], *([row.get("title")] if titled else []), row["score"]] for row in rows]
    show_table(headings, cells, title=title, numbers=("rank", "score"))


def _raw_ids(ids: "IdMap", texts: list[str]) -> list[Any]:
    return list(dict.fromkeys(ids.parse(text) for text in texts))


def _names_of(histories: list[str]) -> list[str]:
    """Return what to call new users."""
    return ["history"] if len(histories) == 1 else [f"history {number}" for number in range(1, len(histories) + 1)]


def histories_of(ids: "IdMap", texts: list[str]) -> list[list[Any]]:
    """Return the raw item ids of each comma-separated text."""
    split = [[part.replace("\0", ",").strip() for part in text.replace(",,", "\0").split(",")] for text in texts]
    return [[ids.parse(part) for part in parts if part] for parts in split]


def _gaps_of(lists: "Recommendations") -> dict[str, Any]:
    """Return which items of a history were ignored and who was answered by popularity; empty for other lists."""
    unknown = [{"user_id": name, "item_ids": ids} for name, ids in lists.unknown_items.items()]
    return ({"unknown_items": unknown} if unknown else {}) | ({"fallbacks": lists.fallbacks} if lists.fallbacks else {})


def _note_gaps(lists: "Recommendations") -> None:
    for name, ids in lists.unknown_items.items():
        named = ", ".join(map(repr, ids[:5])) + (", ..." if len(ids) > 5 else "")
        show_note(f"{name}: {len(ids)} unknown items were ignored: {named}")
    for name in lists.fallbacks:
        show_note(f"{name}: no known item, so these are the most popular ones")


def _lines_of(path: Path | None) -> list[str]:
    """Return the lines of a text file that are not empty."""
    assert path is not None
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text (byte {error.start}); expected one user id per line") from error
    lines = [line for line in text.split("\n") if line.strip()]
    if not lines:
        raise DataError(f"{path} has no lines; expected one user id per line")
    return [line.removesuffix("\r") for line in lines]


def _write(lists: "Recommendations", path: Path, json: bool) -> None:
    from rankformer.data.writers import write_table

    write_table(lists.to_arrow(), path)
    if json:
        show_json({"out": str(path), "rows": len(lists)})
    else:
        show(f"wrote {len(lists):,} rows to {path}")


def _show_lists(lists: "Recommendations", asked: list[Any]) -> None:
    by_user: dict[Any, list[dict[str, Any]]] = {user: [] for user in asked}
    for row in rows_of(lists):
        by_user[row["user_id"]].append(row)
    for user, rows in by_user.items():
        if rows:
            show_ranking(rows, "item_id", f"for {user}")
        else:
            show(f"for {user}: nothing is left to recommend (--include-seen lists what the user has)")
