"""table-ablation: Rankformer with one term of its weights removed at a time, and its relatives of Table 1."""

from typing import Any

from rankformer.research.content import Content, Table
from rankformer.research.published import ABLATION, NDCG, recall_metric
from rankformer.research.request import Request
from rankformer.research.statistics import Plan, Row, Rows, rows_of, score_columns

FULL = "full"
# The paper's variants, by the settings that make them.
VARIANTS: dict[str, dict[str, Any]] = {
    FULL: {},
    "w/o negative pairs": {"negatives": "none"},
    "w/o benchmark": {"benchmark": False},
    "w/o offset": {"alpha": 0.0},
    "w/o normalization": {"normalize": False},
}
# Table 1, which prints no numbers: the layer with the weights of `RankWeights.gat` and `RankWeights.transformer`.
RELATIVES: dict[str, dict[str, Any]] = {
    "GAT": {"negatives": "none", "benchmark": False, "alpha": 0.0},
    "Transformer": {"negatives": "pull", "benchmark": False, "alpha": 0.0},
}
ALL = VARIANTS | RELATIVES
HEADINGS = ("variant", "NDCG paper", "NDCG ours", "gap", "recall paper", "recall ours")


def plan_ablation(request: Request) -> Plan:
    """Return the trainings of the table by dataset and variant."""
    return {
        (data.name, variant): request.row(data, "rankformer", variant if changes else "", **changes)
        for data in request.datasets
        for variant, changes in ALL.items()
    }


def show_ablation(request: Request, rows: Rows) -> Content:
    """Return one table per dataset, and whether the order of effects is the paper's."""
    tables, findings, values = [], [], {}
    for data in request.datasets:
        measured = rows_of(data.name, rows)
        tables.append(_table(data.name, measured))
        findings.append(_order_of_effects(data.name, measured))
        values[data.name] = {
            "settings": request.settings(data, "rankformer"),
            "rows": {variant: {"changes": ALL[variant], **row.to_dict()} for variant, row in measured.items()},
        }
    notes = (
        f"Settings apart from the one changed: {request.origins('rankformer')}.",
        *(
            f"{variant}: {', '.join(f'{name} = {value}' for name, value in changes.items())}."
            for variant, changes in ALL.items()
            if changes
        ),
        "Recall is recall_capped@20. Without the offset (alpha = 0) the sums of Eq. 8 over items without interaction "
        "are estimates of at least 1 (the authors' are of at least 0): the linear form is exact from alpha = 2 on.",
        "GAT and Transformer are the layer with the weights of the paper's Table 1, which compares the formulas and "
        "prints no numbers.",
        "A training whose numbers stop being finite counts with its best validation before that.",
    )
    return Content(tuple(findings), tuple(tables), notes=notes, data=values)


def _table(dataset: str, rows: dict[str, Row]) -> Table:
    recall, published = recall_metric(dataset), ABLATION.get(dataset, {})
    lines = tuple(
        (f"{variant} (*)" if row.failures else variant, *score_columns(row, published.get(variant), recall))
        for variant, row in rows.items()
    )
    counts = sorted({len(row.seeds) for row in rows.values()})
    failed = "; (*) stopped early" if any(row.failures for row in rows.values()) else ""
    title = f"{dataset}: NDCG@20 and {recall} (seeds: {' or '.join(map(str, counts)) or 'none'}{failed})"
    return Table(title, HEADINGS, lines)


def _order_of_effects(dataset: str, rows: dict[str, Row]) -> str:
    """Return a sentence on whether the variants are in the paper's order by NDCG@20, below the full model."""
    scores = {variant: rows[variant].metric(NDCG) for variant in VARIANTS if variant in rows}
    means = {variant: score.mean for variant, score in scores.items() if score is not None}
    if len(means) < len(VARIANTS):
        absent = ", ".join(variant for variant in VARIANTS if variant not in means)
        return f"{dataset}: the order of effects is open, nothing was measured for {absent}."
    ours = sorted(means, key=means.__getitem__)
    if dataset not in ABLATION:
        return f"{dataset}: from worst to best {', '.join(ours)}."
    papers = sorted(VARIANTS, key=lambda variant: ABLATION[dataset][variant].ndcg)
    if ours == papers:
        return f"{dataset}: the paper's order of effects, from worst to best {', '.join(ours)}."
    terms = [variant for variant in ours if variant != FULL]
    if terms == [variant for variant in papers if variant != FULL] and papers[-1] == FULL:
        above = ", ".join(f"{variant} ({means[variant]:.4f})" for variant in ours[ours.index(FULL) + 1 :])
        return (
            f"{dataset}: the four terms in the paper's order, from worst to best {', '.join(terms)}, "
            f"but not below the full model ({means[FULL]:.4f}): {above}."
        )
    orders = f"from worst to best ours is {', '.join(ours)}; the paper's is {', '.join(papers)}"
    return f"{dataset}: not the paper's order of effects; {orders}."
