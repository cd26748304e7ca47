"""`rankformer similar`: the items that a run holds for most like one."""

from typing import Annotated, Any

from rankformer.cli.answers import Length, rows_of, show_ranking
from rankformer.cli.evaluate import RunArgument, load
from rankformer.cli.item_options import apply_filters, takes_filters
from rankformer.cli.model_options import ThreadsOption
from rankformer.cli.output import JsonFlag, option, show, show_json


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
    rows = rows_of(recommender.similar_items(asked, k, **wanted))
    if json:
        show_json({"similar": rows})
    elif rows:
        show_ranking(rows, "similar_item_id", f"similar to {asked}")
    else:
        reason = "the filters leave nothing" if any(filters.values()) else "it has no training interactions"
        show(f"nothing is similar to {asked}: {reason}")
