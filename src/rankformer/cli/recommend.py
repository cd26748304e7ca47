"""`rankformer recommend`, `similar` and `explain`: what a run answers."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rankformer.cli.evaluate import RunArgument, load
from rankformer.cli.item_options import apply_filters, takes_filters
from rankformer.cli.model_options import ThreadsOption
from rankformer.cli.output import JsonFlag, option, show, show_json, show_note, show_table
from rankformer.cli.progress import busy
from rankformer.cli.ranks import TimeoutOption, is_rank, on_ranks
from rankformer.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rankformer.data.id_map import IdMap
    from rankformer.scoring.recommendations import Recommendations

Length = Annotated[int, option("K", "Length of a list; shorter where fewer items remain.", "-k")]


@takes_filters
def recommend(
    run: RunArgument,
    user: Annotated[list[str] | None, option("ID", "A user; may be repeated.")] = None,
    history: Annotated[
        list[str] | None, option("ID,ID", "Items of a new user (repeat it for more), or new ones of --user.")
    ] = None,
    users: Annotated[Path | None, option("FILE", "Text file with one user id per line; - reads stdin.")] = None,
    everyone: Annotated[bool, option("", "Every user of the training data.", "--all")] = False,
    k: Length = 10,
    include_seen: Annotated[bool, option("", "Also list items that the user already has.", "--include-seen")] = False,
    mask: Annotated[
        str, option("known|train", "Leave out every known interaction, or those of train as evaluation does.")
    ] = "known",
    fallback: Annotated[
        str | None,
        option("popularity|none", "Answer unknown users too, or nobody the model cannot rank for."),
    ] = None,
    out: Annotated[Path | None, option("FILE", "Write to a csv, tsv, parquet or jsonl file instead.")] = None,
    to: Annotated[str | None, option("URL", "Write to a table of a PostgreSQL database instead.")] = None,
    table: Annotated[str | None, option("NAME", "Table for --to, made if missing.")] = None,
    overwrite: Annotated[bool, option("", "Replace the rows of the table.", "--overwrite")] = False,
    threads: ThreadsOption = None,
    rank_timeout: TimeoutOption = 600,
    json: JsonFlag = False,
    *,
    filters: dict[str, Any],
) -> None:
    """List the items that RUN ranks highest for users.

    Say for whom in exactly one way: --user, --history, --users or --all; --history with one --user adds items to what
    is known of that user. Ids are those of the training data, whatever their type; within --history a comma that
    belongs to an id is doubled. A user without an interaction that the model was fitted on gets the most popular items,
    and a note says so; so does an unknown one with --fallback popularity.
    Runs that were trained with --items show and filter by the attributes of items. Under torchrun, --all --out DIR
    shares the users among the ranks: each writes a Parquet file, and manifest.json lists them with their checksums.

    Examples:
        rankformer recommend runs/demo --user mira-001 --user otto-002 -k 5
        rankformer recommend runs/demo --history book-020,book-037
        rankformer recommend runs/demo --user mira-001 --history book-020,book-037
        rankformer recommend runs/demo --users ids.txt --json
        rankformer recommend runs/demo --all -k 20 --out lists.parquet
        rankformer recommend runs/shop --user 17 --where "price < 50 and in_stock" --at-most 2:brand
        rankformer recommend runs/demo --all --to postgresql://shop@db/shop --table lists --overwrite
    """
    from rankformer.data.writers import check_writable, write_table
    from rankformer.runs.list_parts import write_parts

    extend = bool(user and history) and users is None and not everyone
    if extend and (len(user or ()) > 1 or len(history or ()) > 1):
        raise ConfigError("--history with --user adds items to what is known of one user; give each of them once")
    if not extend and sum((bool(user), bool(history), users is not None, everyone)) != 1:
        raise ConfigError(
            "say for whom in exactly one way: --user ID (may be repeated), --history ID,ID, --users FILE or --all"
        )
    if is_rank():
        if not everyone or out is None or out.suffix:
            raise ConfigError("several ranks write the lists of --all to a folder; use --all --out DIR")
    elif out is not None:
        check_writable(out)
    if (to is None) != (table is None) or (to is not None and out is not None) or (overwrite and to is None):
        raise ConfigError("--to URL and --table NAME belong together, without --out; --overwrite is for them only")
    if to is not None:
        from rankformer.export.lists import check_target, write_lists

        check_target(to, table or "")
    recommender, wanted = apply_filters(load(run).recommender, filters)
    if is_rank() and out is not None:
        how: dict[str, Any] = {"include_seen": include_seen, "mask": mask, "fallback": fallback, **wanted}
        with on_ranks(rank_timeout) as ranks:
            rows = write_parts(recommender, out, k, ranks, **how)
            show(f"wrote {rows:,} rows to {ranks.size} files in {out}")
        return
    asked: list[Any]
    with busy("ranking"):
        if history:
            asked = [f"history {number}" for number in range(1, len(history) + 1)] if history[1:] else ["history"]
            asked = [recommender.user_ids.parse(user[0])] if extend and user else asked
            parsed = [_parse_history(recommender.item_ids, entry) for entry in history]
            histories = dict(zip(asked, parsed, strict=True))
            lists = recommender.recommend_histories(histories, k, extend=extend, include_seen=include_seen, **wanted)
        else:
            ids = recommender.user_ids
            named = user or ([] if users is None else _lines_of(users))
            asked = ids.ids.to_pylist() if everyone else list(dict.fromkeys(map(ids.parse, named)))
            chosen: dict[str, Any] = {"include_seen": include_seen, "mask": mask, "fallback": fallback, **wanted}
            lists = recommender.recommend(None if everyone else asked, k, **chosen)
    _note_gaps(lists, "known item" if history else "interaction the model was fitted on")
    if to is not None:
        with busy(f"writing {table}"):
            write_lists(lists.to_arrow(), to, table or "", overwrite)
        if json:
            show_json({"table": table, "rows": len(lists), "fallbacks": lists.fallbacks})
        else:
            show(f"wrote {len(lists):,} rows to the table {table}")
    elif out is not None:
        with busy(f"writing {out}"):
            write_table(lists.to_arrow(), out)
        if json:
            show_json({"out": str(out), "rows": len(lists), "fallbacks": lists.fallbacks})
        else:
            show(f"wrote {len(lists):,} rows to {out}")
    elif json:
        unknown = [{"user_id": name, "item_ids": ids} for name, ids in lists.unknown_items.items()]
        gaps = {"unknown_items": unknown, "fallbacks": lists.fallbacks, "left_out": list(lists.left_out)}
        show_json({"recommendations": _rows_of(lists), **{name: gap for name, gap in gaps.items() if gap}})
    else:
        _show_lists(lists, asked)


@takes_filters
def similar(
    run: RunArgument,
    item: Annotated[str, option("ID", "The item to start from.")],
    k: Length = 10,
    threads: ThreadsOption = None,
    json: JsonFlag = False,
    *,
    filters: dict[str, Any],
) -> None:
    """List the items most similar to ITEM, by the cosine of their embeddings or by item weights.

    Examples:
        rankformer similar runs/demo --item book-001 -k 5
        rankformer similar runs/shop --item 4711 --where in_stock
    """
    recommender, wanted = apply_filters(load(run).recommender, filters)
    asked = recommender.item_ids.parse(item)
    rows = _rows_of(recommender.similar_items(asked, k, **wanted))
    if json:
        show_json({"similar": rows})
    elif rows:
        _show_ranking(rows, "similar_item_id", f"similar to {asked}")
    else:
        reason = "the filters leave nothing" if any(filters.values()) else "it has no training interactions"
        show(f"nothing is similar to {asked}: {reason}")


def explain(
    run: RunArgument,
    item: Annotated[str, option("ID", "The item whose score is explained.")],
    user: Annotated[str | None, option("ID", "A user of the training data.")] = None,
    history: Annotated[str | None, option("ID,ID", "Items of a new user, or new ones of --user.")] = None,
    k: Annotated[int, option("K", "Reasons to show; the rest is summed in one line.", "-k")] = 10,
    threads: ThreadsOption = None,
    json: JsonFlag = False,
) -> None:
    """Explain why RUN scores an item as it does for a user.

    The score is split exactly into the contribution of each item of the user's history, the largest first, and that of
    all other items together; the score of a blend is also split over its members. With --json every item of the history
    is listed.

    Examples:
        rankformer explain runs/demo --user mira-001 --item book-128
        rankformer explain runs/demo --history book-020,book-037 --item book-128 --json
    """
    if k < 1:
        raise ConfigError(f"k={k}: at least one reason must be shown; use k >= 1")
    if user is None and history is None:
        raise ConfigError("say for whom: --user ID, --history ID,ID, or both for new items of a user")
    recommender = load(run).recommender
    known = None if history is None else _parse_history(recommender.item_ids, history)
    asked = None if user is None else recommender.user_ids.parse(user)
    found = recommender.explain(asked, recommender.item_ids.parse(item), history=known)
    if json:
        show_json(found.to_dict())
        return
    shown, hidden = found.reasons[:k], found.reasons[k:]
    rows = [[reason.contribution, reason.item_id, reason.title] for reason in shown]
    if hidden:
        rows.append([sum(reason.contribution for reason in hidden), "", f"{len(hidden)} more of the history"])
    if found.user_contribution:
        rows.append([found.user_contribution, "", "the user's own embedding"])
    rows.append([found.global_contribution, "", "all items outside the history"])
    whom = "this history" if user is None else found.user_id
    title = f"{found.item_id}{'' if found.title is None else f' ({found.title})'} for {whom}"
    show_table(("contribution", "item", "title"), rows, title=title, numbers=("contribution",))
    if found.members is not None:
        _note_left_out(recommender.scorer.left_out_of_fold_in if history is not None else ())
        by_member = sorted(found.members.items(), key=lambda each: -each[1])
        show_table(("contribution", "member"), [each[::-1] for each in by_member], numbers=("contribution",))
    show(f"score {found.score:.4f}")


def _rows_of(lists: "Recommendations") -> list[dict[str, Any]]:
    """Return one dictionary per item of the lists, with what is known of it, and who has a fallback."""
    always, whom = ("user_id", "item_id", "similar_item_id", "score", "rank"), set(lists.fallbacks)
    return [
        {name: value for name, value in row.items() if name in always or value is not None}
        | ({"fallback": "popularity"} if row.get("user_id") in whom else {})
        for row in lists.to_dicts()
    ]


def _show_ranking(rows: list[dict[str, Any]], item: str, title: str) -> None:
    """Print one list as a table; `item` is the key of the listed item."""
    keys = {"rank": "rank", "item": item, "title": "title", "score": "score"}
    own = ("user_id", "item_id", *keys.values())
    keys |= {name: name for row in rows for name in row if name not in own}
    headings = [heading for heading, key in keys.items() if any(key in row for row in rows)]
    cells = [[row.get(keys[heading]) for heading in headings] for row in rows]
    show_table(headings, cells, title=title, numbers=("rank", "score"))


def _parse_history(ids: "IdMap", text: str) -> list[Any]:
    """Return the raw item ids in a string with commas between them; a comma inside an id is doubled."""
    parts = (part.replace("\0", ",").strip() for part in text.replace(",,", "\0").split(","))
    return [ids.parse(part) for part in parts if part]


def _note_gaps(lists: "Recommendations", lacking: str) -> None:
    """Say which items of a history were ignored and who was answered by popularity, in one line if there are many."""
    for name, ids in lists.unknown_items.items():
        named = ", ".join(map(repr, ids[:5])) + (", ..." if len(ids) > 5 else "")
        show_note(f"{name}: {len(ids)} unknown items were ignored: {named}")
    whom = lists.fallbacks if len(lists.fallbacks) <= 5 else [f"{len(lists.fallbacks):,} users"]
    for name in whom:
        show_note(f"{name}: no {lacking}, so these are the most popular ones")
    _note_left_out(lists.left_out)


def _note_left_out(members: "Sequence[str]") -> None:
    if members:
        show_note(f"without {', '.join(members)}: {'they' if members[1:] else 'it'} cannot score new users")


def _lines_of(path: Path) -> list[str]:
    """Return the lines of a file of user ids, or of stdin."""
    from rankformer.data.id_map import read_id_lines

    if str(path) == "-":
        lines = [line for line in sys.stdin.read().splitlines() if line.strip()]
    else:
        lines = read_id_lines(path, "user")
    if not lines:
        raise DataError(f"{path} has no lines; expected one user id per line")
    return lines


def _show_lists(lists: "Recommendations", asked: list[Any]) -> None:
    by_user: dict[Any, list[dict[str, Any]]] = {user: [] for user in asked}
    for row in _rows_of(lists):
        by_user[row["user_id"]].append(row)
    for user, rows in by_user.items():
        if rows:
            _show_ranking(rows, "item_id", f"for {user}")
        else:
            hint = "--include-seen lists what the user has, other filters may leave more"
            show(f"for {user}: nothing is left to recommend ({hint})")
