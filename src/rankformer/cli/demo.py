"""`rankformer demo`: the whole way from a log to lists, on built-in data, in under a minute."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankformer.cli.output import JsonFlag, help_of, show, show_json, show_table
from rankformer.cli.progress import busy, progress_of

if TYPE_CHECKING:
    from rankformer.data.interactions import Interactions, Parts
    from rankformer.evaluation.evaluator import Evaluation
    from rankformer.models.base import Model

# Chosen on the valid part, mean of three seeds: ndcg@20 .4079. Three layers gave .4073 to .4078, which is no
# difference that three seeds can tell; two are the simpler model.
SETTINGS: dict[str, Any] = {
    "num_layers": 2,
    "tau": 0.4,
    "learning_rate": 0.03,
    "schedule": "constant",
    "initialization": "normal",
    "epochs": 300,
    "validate_every": 10,
    "patience": 5,
}
EXAMPLE_USERS = 3
EXAMPLE_LENGTH = 5
SHOWN_HISTORY = 4

EXAMPLES = """Examples:

rankformer demo

rankformer demo --out runs/demo
"""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(name="demo", help=help_of(demo), epilog=EXAMPLES)(demo)


def demo(
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Seed of the training; the data stays the same.")] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="RUN", help="Also keep the trained model in this folder.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Train on built-in data and show what comes out.

    900 invented readers with planted tastes and 400 books. Since we planted the tastes, the best score that any
    method could reach is known; it stands beside Rankformer's and popularity's.
    """
    from rankformer.data.source import DataSource
    from rankformer.models.rankformer import Rankformer
    from rankformer.runs.folder import RunFolder
    from rankformer.runs.sequence import fit_and_evaluate, train_run

    if out is not None:
        RunFolder(out).claim(resume=False, overwrite=False)
    source = DataSource(source="demo")
    parts = source.load()
    if not json:
        show("900 invented readers, 400 books: training Rankformer on what they read ...")
    model = Rankformer(seed=seed, **SETTINGS)
    with _one_thread(), progress_of(model.settings, validates=True) as on_event:
        if out is not None:
            outcome, _ = train_run(model, source, parts, out, on_event=on_event, stage=busy)
        else:
            outcome = fit_and_evaluate(model, parts, on_event=on_event, stage=busy)
    evaluation, history = outcome.evaluation, outcome.history
    assert evaluation is not None
    metrics = {
        "rankformer": evaluation.metrics,
        "popularity": _popularity_metrics(parts),
        "oracle": _oracle_metrics(parts),
    }
    examples = _examples(model, parts)
    if json:
        protocol = evaluation.protocol.to_dict()
        training = {"epochs": history.epochs, "best_epoch": history.best_epoch, "seconds": history.seconds}
        document = {"metrics": metrics, "protocol": protocol, "training": training, "examples": examples}
        show_json({**document, "run": None if out is None else str(out)})
        return
    _show_metrics(metrics)
    for example in examples:
        _show_example(example)
    _show_closing(evaluation, examples[0], out)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute on one thread for a while: steps this small lose more to waiting for each other than they gain.

    On two cores that other work kept busy, two threads took 11 to 15 s where one took 2 to 3 s (two runs each).
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _popularity_metrics(parts: "Parts") -> dict[str, float]:
    from rankformer.evaluation.evaluator import evaluate
    from rankformer.models.popularity import Popularity

    return evaluate(Popularity().fit(parts.train), parts.test).metrics


def _oracle_metrics(parts: "Parts") -> dict[str, float]:
    """Return the metrics of the true probabilities behind the demo: no method can rank better on average."""
    import torch

    from rankformer.data.demo import demo_oracle_scores
    from rankformer.evaluation.evaluator import evaluate
    from rankformer.scoring.embeddings import Embeddings
    from rankformer.scoring.recommender import Recommender

    train, probabilities = parts.train, torch.from_numpy(demo_oracle_scores())
    oracle = Embeddings(probabilities, torch.eye(train.num_items, dtype=probabilities.dtype))
    return evaluate(Recommender(oracle, train.user_ids, train.item_ids, train), parts.test).metrics


def _examples(model: "Model", parts: "Parts") -> list[dict[str, Any]]:
    """Return, for the first few readers with test books, what they have read and what is recommended."""
    import numpy as np

    readers = np.unique(parts.test.users)[:EXAMPLE_USERS]
    ids = model.recommender.user_ids.take(readers).to_pylist()
    lists = model.recommend(ids, EXAMPLE_LENGTH).to_dicts()
    examples = []
    for reader, name in zip(readers, ids, strict=True):
        read_later = set(_items_of(parts.test, reader))
        rows = [
            {
                "rank": row["rank"],
                "item_id": row["item_id"],
                "title": row["title"],
                "in_test": row["item_id"] in read_later,
            }
            for row in lists
            if row["user_id"] == name
        ]
        examples.append({"user_id": name, "history": _titles_of(parts.train, reader), "recommendations": rows})
    return examples


def _items_of(part: "Interactions", user: int) -> list[Any]:
    ids: list[Any] = part.item_ids.take(part.items[part.users == user]).to_pylist()
    return ids


def _titles_of(part: "Interactions", user: int) -> list[str]:
    import pyarrow as pa

    assert part.item_titles is not None
    titles: list[str] = part.item_titles.take(pa.array(part.items[part.users == user])).to_pylist()
    return titles


def _show_metrics(metrics: dict[str, dict[str, float]]) -> None:
    labels = {"rankformer": "Rankformer", "popularity": "popularity", "oracle": "best reachable"}
    names = list(metrics["rankformer"])
    rows = [(labels[key], *values.values()) for key, values in metrics.items()]
    show_table(("method", *names), rows, title="on the books they read later (test part)", numbers=names)


def _show_example(example: dict[str, Any]) -> None:
    history = example["history"]
    more = f" and {len(history) - SHOWN_HISTORY} more" if len(history) > SHOWN_HISTORY else ""
    show(f"{example['user_id']} read {', '.join(history[:SHOWN_HISTORY])}{more}")
    for row in example["recommendations"]:
        show(f"  {row['rank']}. {'*' if row['in_test'] else ' '} {row['title']}")
    show("")


def _show_closing(evaluation: "Evaluation", example: dict[str, Any], out: Path | None) -> None:
    show("* the reader did read it: it is in the test part, which training never saw", "")
    show(f"protocol: {evaluation.protocol.line()}", "")
    folder = shlex.quote(str(out)) if out is not None else "runs/demo"
    if out is None:
        show("try next:  rankformer demo --out runs/demo     (keeps the model)")
        show(f"     then  rankformer recommend {folder} --user {example['user_id']}")
    else:
        show(f"try next:  rankformer recommend {folder} --user {example['user_id']}")
        item = example["recommendations"][0]["item_id"]
        show(f"      and  rankformer similar {folder} --item {item}")
