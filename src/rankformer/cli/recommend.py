"""`rankformer recommend`: the items that a run ranks highest for users."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rankformer.cli.answers import Length, note_left_out, parse_history, rows_of, show_ranking
from rankformer.cli.evaluate import RunArgument, load
from rankformer.cli.item_options import apply_filters, takes_filters
from rankformer.cli.model_options import ThreadsOption
from rankformer.cli.output import JsonFlag, option, show, show_json, show_note
from rankformer.cli.progress import busy
from rankformer.cli.ranks import TimeoutOption, is_rank, on_ranks
from rankformer.errors import ConfigError, DataError

if TYPE_CHECKING:
    from rankformer.scoring.recommendations import Recommendations


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
        str | None, option("popularity|none", "Answer unknown users too, or nobody the model cannot rank for.")
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
    how: dict[str, Any] = {"include_seen": include_seen, "mask": mask, "fallback": fallback, **wanted}
    if is_rank() and out is not None:
        with on_ranks(rank_timeout) as ranks:
            rows = write_parts(recommender, out, k, ranks, **how)
            show(f"wrote {rows:,} rows to {ranks.size} files in {out}")
        return
    asked: list[Any]
    with busy("ranking"):
        if history:
            asked = [f"history {number}" for number in range(1, len(history) + 1)] if history[1:] else ["history"]
            asked = [recommender.user_ids.parse(user[0])] if extend and user else asked
            parsed = [parse_history(recommender.item_ids, entry) for entry in history]
            histories = dict(zip(asked, parsed, strict=True))
            lists = recommender.recommend_histories(histories, k, extend=extend, include_seen=include_seen, **wanted)
        else:
            ids = recommender.user_ids
            named = user or ([] if users is None else _lines_of(users))
            asked = ids.ids.to_pylist() if everyone else list(dict.fromkeys(map(ids.parse, named)))
            lists = recommender.recommend(None if everyone else asked, k, **how)
    _note_gaps(lists, "known item" if history else "interaction the model was fitted on")
    if to is not None or out is not None:
        with busy(f"writing {table or out}"):
            if to is not None:
                write_lists(lists.to_arrow(), to, table or "", overwrite)
            elif out is not None:
                write_table(lists.to_arrow(), out)
        if json:
            where = {"table": table} if to is not None else {"out": str(out)}
            show_json({**where, "rows": len(lists), "fallbacks": lists.fallbacks})
        else:
            show(f"wrote {len(lists):,} rows to {out or f'the table {table}'}")
    elif json:
        unknown = [{"user_id": name, "item_ids": ids} for name, ids in lists.unknown_items.items()]
        gaps = {"unknown_items": unknown, "fallbacks": lists.fallbacks, "left_out": list(lists.left_out)}
        show_json({"recommendations": rows_of(lists), **{name: gap for name, gap in gaps.items() if gap}})
    else:
        _show_lists(lists, asked)


def _note_gaps(lists: "Recommendations", lacking: str) -> None:
    """Say which items of a history were ignored and who was answered by popularity, in one line if there are many."""
    for name, ids in lists.unknown_items.items():
        named = ", ".join(map(repr, ids[:5])) + (", ..." if len(ids) > 5 else "")
        show_note(f"{name}: {len(ids)} unknown items were ignored: {named}")
    whom = lists.fallbacks if len(lists.fallbacks) <= 5 else [f"{len(lists.fallbacks):,} users"]
    for name in whom:
        show_note(f"{name}: no {lacking}, so these are the most popular ones")
    note_left_out(lists.left_out)


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
    for row in rows_of(lists):
        by_user[row["user_id"]].append(row)
    for user, rows in by_user.items():
        if rows:
            show_ranking(rows, "item_id", f"for {user}")
        else:
            hint = "--include-seen lists what the user has, other filters may leave more"
            show(f"for {user}: nothing is left to recommend ({hint})")
