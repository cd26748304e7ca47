"""table-ablation: Rankformer with one part of its weights taken away at a time, and its relatives of Table 1."""

from typing import Any

from rankformer.research.cells import Cell, DataCard
from rankformer.research.content import Content, Table
from rankformer.research.published import ABLATION, NDCG, Score, recall_metric
from rankformer.research.request import Request
from rankformer.research.runner import Results
from rankformer.research.summary import Row, beside

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
HEADINGS = (
    *("variant", "setting", "seeds", "NDCG@20 paper", "NDCG@20 ours", "difference"),
    *("recall paper", "recall ours", "difference of recall"),
)


def ablation_cells(request: Request) -> list[Cell]:
    """Return the trainings of the table."""
    return [cell for data in request.datasets for variant in ALL for cell in _cells(request, data, variant)]


def show_ablation(request: Request, results: Results) -> Content:
    """Return one table per dataset, and whether the order of effects is the paper's."""
    tables, findings, values = [], [], {}
    for data in request.datasets:
        rows = {variant: Row.of(_cells(request, data, variant), results) for variant in ALL}
        tables.append(_table(data, rows))
        findings.append(_order(data.name, {variant: rows[variant] for variant in VARIANTS}))
        values[data.name] = {
            "settings": request.settings(data, "rankformer"),
            "rows": {
                variant: {"changes": ALL[variant], "published": _published(data.name, variant), **row.to_dict()}
                for variant, row in rows.items()
            },
        }
    origins = {data.name: request.settings_of(data.name, "rankformer").origin for data in request.datasets}
    notes = (
        "Settings apart from the one named: "
        + "; ".join(f"{name}: {origin}" for name, origin in origins.items())
        + ".",
        "Recall is recall_capped@20. Without the offset (alpha = 0) the sums of Eq. 8 over untouched items are "
        "estimates of at least 1 (the authors' are of at least 0): the linear form is exact from alpha = 2 on.",
        "GAT and Transformer are the layer with the weights of the paper's Table 1, which compares the formulas and "
        "prints no numbers.",
        "A training whose numbers stop being finite counts with its best validation before that.",
    )
    return Content(tuple(findings), tuple(tables), notes=notes, data=values)


def _cells(request: Request, data: DataCard, variant: str) -> list[Cell]:
    return request.row(data, "rankformer", variant if ALL[variant] else "", **ALL[variant])


def _score(dataset: str, variant: str) -> Score | None:
    return ABLATION.get(dataset, {}).get(variant)


def _published(dataset: str, variant: str) -> dict[str, float] | None:
    score = _score(dataset, variant)
    return score._asdict() if score else None


def _table(data: DataCard, rows: dict[str, Row]) -> Table:
    recall = recall_metric(data.name)
    lines = tuple(
        (variant, _change(variant, row), str(len(row.seeds)), *beside(row, _score(data.name, variant), recall))
        for variant, row in rows.items()
    )
    return Table(f"{data.name}: NDCG@20 and {recall}", HEADINGS, lines, texts=2)


def _change(variant: str, row: Row) -> str:
    changed = ", ".join(f"{name} = {_word(value)}" for name, value in ALL[variant].items()) or "all terms"
    return changed + (f"; {len(row.failures)} broke off" if row.failures else "")


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _order(dataset: str, rows: dict[str, Row]) -> str:
    """Return a sentence on whether the variants are in the paper's order by NDCG@20, below the full model."""
    scores = {variant: row.metric(NDCG) for variant, row in rows.items()}
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
