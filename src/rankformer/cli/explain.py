"""`rankformer explain`: a score as a sum over the user's history."""

from typing import Annotated

import typer

from rankformer.cli.evaluate import RunArgument
from rankformer.cli.output import JsonFlag, help_of, show, show_json, show_table
from rankformer.errors import ConfigError

EXAMPLES = """Examples:

rankformer explain runs/demo --user mira-001 --item book-128

rankformer explain runs/demo --user mira-001 --item book-128 --json
"""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(name="explain", help=help_of(explain), epilog=EXAMPLES)(explain)


def explain(
    run: RunArgument,
    user: Annotated[str, typer.Option(metavar="ID", help="A user of the training data.")],
    item: Annotated[str, typer.Option(metavar="ID", help="The item whose score is explained.")],
    k: Annotated[int, typer.Option("-k", metavar="K", help="Reasons to show; the rest is summed in one line.")] = 10,
    json: JsonFlag = False,
) -> None:
    """Say why RUN scores an item as it does for a user.

    The score is split exactly into what each item of the user's history brings, the largest first, and what all other
    items bring together. With --json every item of the history is listed.
    """
    from rankformer.runs.run import load_run

    if k < 1:
        raise ConfigError(f"k={k}: at least one reason must be shown; ask for k >= 1")
    recommender = load_run(run).recommender
    found = recommender.explain(recommender.user_ids.parse(user), recommender.item_ids.parse(item))
    if json:
        show_json(found.to_dict())
        return
    shown, hidden = found.reasons[:k], found.reasons[k:]
    rows = [[reason.contribution, reason.item_id, reason.title] for reason in shown]
    if hidden:
        rows.append([sum(reason.contribution for reason in hidden), "", f"{len(hidden)} more of the history"])
    if found.own:
        rows.append([found.own, "", "the user's own learned vector"])
    rows.append([found.crowd, "", "the crowd: all items outside the history"])
    title = f"{found.item_id}{'' if found.title is None else f' ({found.title})'} for {found.user_id}"
    show_table(("brings", "item", "title"), rows, title=title, numbers=("brings",))
    show(f"score {found.score:.4f}")
