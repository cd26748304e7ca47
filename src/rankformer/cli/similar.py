"""`rankformer similar`: the neighbours of an item."""

from typing import Annotated

import typer

from rankformer.cli.evaluate import RunArgument
from rankformer.cli.output import JsonFlag, show, show_json
from rankformer.cli.recommend import Length, rows_of, show_ranking


def similar(
    run: RunArgument,
    item: Annotated[str, typer.Option(metavar="ID", help="The item to start from.")],
    k: Length = 10,
    json: JsonFlag = False,
) -> None:
    """List the items most similar to ITEM, by the cosine of their embeddings or by item weights.

    Examples:
        rankformer similar runs/demo --item book-001 -k 5
    """
    from rankformer.runs.saved import load_run

    recommender = load_run(run).recommender
    asked = recommender.item_ids.parse(item)
    rows = rows_of(recommender.similar_items(asked, k))
    if json:
        show_json({"similar": rows})
    elif rows:
        show_ranking(rows, "similar_item_id", f"similar to {asked}")
    else:
        show(f"nothing is similar to {asked}: it has no training interactions")
