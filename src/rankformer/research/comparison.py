"""table-comparison: every method on every dataset, the paper's number beside ours, and whether the lead holds."""

from typing import Any, NamedTuple

from rankformer.models.registry import MODELS
from rankformer.research.cells import Cell, DataCard
from rankformer.research.content import Content, Table
from rankformer.research.published import COMPARISON, IMPROVEMENT, METHOD_NAMES, NDCG, NOTES, recall_metric
from rankformer.research.request import Request
from rankformer.research.runner import Results
from rankformer.research.significance import PairedTest, paired_test
from rankformer.research.summary import MISSING, Row, beside, chance

RECOMMENDERS = ("mf", "lightgcn", "dualvae", "mgformer")
TRANSFORMERS = ("nodeformer", "difformer", "sgformer")
CONTRASTIVE = ("xsimgcl", "gformer")
SIMPLE = ("popularity", "item-knn", "ease", "ials", "gf-cf")
METHODS = (*RECOMMENDERS, *TRANSFORMERS, "rankformer", *CONTRASTIVE, "rankformer-cl", *SIMPLE)
# Whose lead is tested against the best of which others; the first two are the paper's.
CLAIMS = (
    ("rankformer", "the paper's methods without contrastive loss", (*RECOMMENDERS, *TRANSFORMERS)),
    ("rankformer-cl", "the paper's contrastive methods", CONTRASTIVE),
    ("rankformer", "simple methods that the paper leaves out", SIMPLE),
    ("rankformer-cl", "simple methods that the paper leaves out", SIMPLE),
)
HEADINGS = (
    *("method", "settings", "seeds", "NDCG@20 published", "NDCG@20 ours", "difference"),
    *("recall published", "recall ours", "difference of recall"),
)


class Lead(NamedTuple):
    """A tested lead: who, over whom, on which metric."""

    champion: str
    rivals: str
    runner_up: str
    metric: str
    test: PairedTest
    gain: float  # in per cent of the runner-up's mean
    published_gain: float | None


def comparison_cells(request: Request) -> list[Cell]:
    """Return the trainings of the table."""
    return [cell for data in request.datasets for method in METHODS for cell in _cells(request, data, method)]


def show_comparison(request: Request, results: Results) -> Content:
    """Return the tables of all datasets, the tested leads and the commands."""
    tables: list[Table] = []
    findings: list[str] = []
    values: dict[str, Any] = {}
    for data in request.datasets:
        rows = {method: Row.of(_cells(request, data, method), results) for method in METHODS if request.wants(method)}
        leads = tested_leads(data.name, rows)
        tables.append(_score_table(request, data, rows))
        if leads:
            tables.append(_lead_table(data, leads))
            findings += [_sentence(data, lead) for lead in leads if lead.metric == NDCG]
        values[data.name] = {
            "rows": {method: _row_data(request, data, method, row) for method, row in rows.items()},
            "leads": [{**lead._asdict(), "test": lead.test.to_dict()} for lead in leads],
        }
    tables.append(_command_table(request))
    notes = [NOTES[data.name] for data in request.datasets if data.name in NOTES]
    notes.append(
        "Ours: mean ± standard deviation over seeds (one where nothing is drawn at random), test part, at the best "
        "validation NDCG@20, training items left out of the lists. Recall is recall_capped@20, which divides by "
        "min(20, test lines) as the paper does" + (", and recall@20 on yelp2018-lightgcn." if notes else ".")
    )
    notes.append(
        "Leads: paired t-test over users (two-sided), each user's mean over seeds under one method less that under "
        "the other; it tests the difference of means that the table claims. Wilcoxon's signed ranks would drop the "
        "many users whom both methods serve alike. Users are the sample; no correction for several tests is made."
    )
    return Content(tuple(findings), tuple(tables), notes=tuple(notes), data=values)


def tested_leads(dataset: str, rows: dict[str, Row]) -> list[Lead]:
    """Return the test of each claim whose champion and at least one rival were measured, on both metrics."""
    metrics = (NDCG, recall_metric(dataset))
    found = [_tested(dataset, rows, claim, column, metric) for claim in CLAIMS for column, metric in enumerate(metrics)]
    return [lead for lead in found if lead is not None]


def _tested(
    dataset: str, rows: dict[str, Row], claim: tuple[str, str, tuple[str, ...]], column: int, metric: str
) -> Lead | None:
    """Return the champion's lead over the best rival by this metric; the runner-up may differ between metrics."""
    champion, words, rivals = claim
    measured = {method: rows[method].per_user(metric) for method in (champion, *rivals) if method in rows}
    values = {method: users for method, users in measured.items() if users is not None}
    others = {method: float(users.mean()) for method, users in values.items() if method != champion}
    if champion not in values or not others:
        return None
    runner_up = max(others, key=others.__getitem__)
    test = paired_test(values[champion], values[runner_up])
    gain = 100 * test.difference / others[runner_up] if others[runner_up] else 0.0
    printed = IMPROVEMENT.get(dataset, {}).get(champion) if rivals is not SIMPLE else None
    return Lead(champion, words, runner_up, metric, test, gain, printed[column] if printed else None)


def _cells(request: Request, data: DataCard, method: str) -> list[Cell]:
    return request.row(data, method) if request.wants(method) else []


def _score_table(request: Request, data: DataCard, rows: dict[str, Row]) -> Table:
    recall = recall_metric(data.name)
    published = COMPARISON.get(data.name, {})
    lines = tuple(
        (METHOD_NAMES[method], *_origin(request, data, method, row), *beside(row, published.get(method), recall))
        for method, row in rows.items()
    )
    return Table(f"{data.name}: NDCG@20 and {recall}", HEADINGS, lines, texts=2)


def _origin(request: Request, data: DataCard, method: str, row: Row) -> tuple[str, str]:
    """Return where a row's settings come from, or why it is empty, and its number of seeds."""
    if method not in MODELS:
        return "not available in this version", MISSING
    if not row.seeds:
        return "not run", "0"
    broken = f"; {len(row.failures)} broke off" if row.failures else ""
    return request.settings_of(data.name, method).origin + broken, str(len(row.seeds))


def _lead_table(data: DataCard, leads: list[Lead]) -> Table:
    headings = ("claim", "metric", "difference", "95% interval", "gain", "paper's gain", "t", "p", "users")
    rows = tuple(
        (
            f"{METHOD_NAMES[lead.champion]} against {METHOD_NAMES[lead.runner_up]}, the best of {lead.rivals}",
            lead.metric,
            f"{lead.test.difference:+.4f}",
            f"{lead.test.low:+.4f} to {lead.test.high:+.4f}",
            f"{lead.gain:+.2f}%",
            MISSING if lead.published_gain is None else f"{lead.published_gain:+.2f}%",
            f"{lead.test.t:.2f}",
            chance(lead.test.p),
            f"{lead.test.users:,}",
        )
        for lead in leads
    )
    return Table(f"{data.name}: leads over the runner-up (paired t-test over users)", headings, rows, texts=2)


def _sentence(data: DataCard, lead: Lead) -> str:
    ahead = lead.test.difference > 0
    verb = "leads" if ahead else "is behind"
    sure = "significant at p < 0.05" if lead.test.p < 0.05 else "not significant at p < 0.05"
    return (
        f"{data.name}: {METHOD_NAMES[lead.champion]} {verb} {METHOD_NAMES[lead.runner_up]}, the best of {lead.rivals}, "
        f"by {abs(lead.gain):.2f}% of NDCG@20 ({sure}, p = {chance(lead.test.p)})."
    )


def _command_table(request: Request) -> Table:
    rows = tuple(
        (f"{METHOD_NAMES[method]}, {data.name}", request.settings_of(data.name, method).command)
        for data in request.datasets
        for method in METHODS
        if request.wants(method) and method in MODELS
    )
    return Table("Each row by itself (add --seed N)", ("row", "command"), rows, texts=2)


def _row_data(request: Request, data: DataCard, method: str, row: Row) -> dict[str, Any]:
    published = COMPARISON.get(data.name, {}).get(method)
    available = method in MODELS
    return {
        "available": available,
        "published": published._asdict() if published else None,
        "settings": request.settings(data, method) if available else None,
        "settings_from": request.settings_of(data.name, method).origin if available else None,
        "command": request.settings_of(data.name, method).command if available else None,
        **row.to_dict(),
    }
