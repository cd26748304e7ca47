"""`rankformer explain`: why a run scores an item as it does."""

from typing import Annotated

from rankformer.cli.answers import note_left_out, parse_history
from rankformer.cli.evaluate import RunArgument, load
from rankformer.cli.model_options import ThreadsOption
from rankformer.cli.output import JsonFlag, option, show, show_json, show_table
from rankformer.errors import ConfigError


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
    if found.members is not None:
        note_left_out(recommender.scorer.left_out_of_fold_in if history is not None else ())
        by_member = sorted(found.members.items(), key=lambda each: -each[1])
        show_table(("contribution", "member"), [each[::-1] for each in by_member], numbers=("contribution",))
    show(f"score {found.score:.4f}")
