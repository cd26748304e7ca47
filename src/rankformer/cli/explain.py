"""`rankformer explain`: a score as a sum over the user's history."""

from typing import Annotated

import typer

from rankformer.cli.evaluate import RunArgument
from rankformer.cli.output import JsonFlag, show, show_json, show_table
from rankformer.cli.recommend import parse_history
from rankformer.errors import ConfigError


def explain(
    run: RunArgument,
    item: Annotated[str, typer.Option(metavar="ID", help="The item whose score is explained.")],
    user: Annotated[str | None, typer.Option(metavar="ID", help="A user of the training data.")] = None,
    history: Annotated[
        str | None, typer.Option(metavar="ID,ID", help="Items of a new user, in place of --user.")
    ] = None,
    k: Annotated[int, typer.Option("-k", metavar="K", help="Reasons to show; the rest is summed in one line.")] = 10,
    json: JsonFlag = False,
) -> None:
    """Explain why RUN scores an item as it does for a user.

    The score is split exactly into the contribution of each item of the user's history, the largest first, and that of
    all other items together. With --json every item of the history is listed.

    Examples:
        rankformer explain runs/demo --user mira-001 --item book-128
        rankformer explain runs/demo --history book-020,book-037 --item book-128 --json
    """
    from rankformer.runs.saved import load_run

    if k < 1:
        raise ConfigError(f"k={k}: at least one reason must be shown; ask for k >= 1")
    if (user is None) == (history is None):
        raise ConfigError("say for whom in exactly one way: --user ID or --history ID,ID")
    recommender = load_run(run).recommender
    known = None if history is None else parse_history(recommender.item_ids, history)
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
    show(f"score {found.score:.4f}")
