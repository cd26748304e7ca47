"""`rankformer demo`: the whole way from a log to lists, on built-in data, in under a minute."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rankformer.cli.model_options import use_threads
from rankformer.cli.output import JsonFlag, option, show, show_json, show_table
from rankformer.cli.progress import busy, progress_of

if TYPE_CHECKING:
    from rankformer.data.parts import Parts
    from rankformer.models.base import Model

# Chosen on the valid part, mean of three seeds: ndcg@20 .4079. Three layers gave .4073 to .4078, which is no
# difference that three seeds can show; two are the simpler model.
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


def demo(
    seed: Annotated[int, option("N", "Seed of the training; the data stays the same.", min=0)] = 0,
    out: Annotated[Path | None, option("RUN", "Also keep the blend in this folder.")] = None,
    json: JsonFlag = False,
) -> None:
    """Train on built-in data and show what comes out.

    900 invented readers with planted tastes and 400 books. Since we planted the tastes, the best score that any
    method could reach is known; it stands beside what the blend, Rankformer and popularity reach.

    Examples:
        rankformer demo
        rankformer demo --out runs/demo
    """
    from rankformer.data.source import DataSource
    from rankformer.models.blend import Blend
    from rankformer.models.rankformer import Rankformer
    from rankformer.runs.folder import RunFolder
    from rankformer.runs.sequence import fit_and_evaluate, train_run

    if out is not None:
        RunFolder(out).claim(resume=False, overwrite=False)
    source = DataSource(source="demo")
    parts = source.load()
    if not json:
        show("900 invented readers, 400 books: training on what they read ...")
    # Steps this small lose more to waiting for each other than they gain: on two cores that other work kept busy,
    # two threads took 11 to 15 s where one took 2 to 3 s (two runs each).
    use_threads(1)
    paper = Rankformer(seed=seed, **SETTINGS)
    with progress_of(paper.settings, validates=True) as on_event:
        alone = fit_and_evaluate(paper, parts, on_event=on_event, stage=busy)
    model = Blend(seed=seed, member_settings={"rankformer": SETTINGS})
    with progress_of(model.settings, validates=True) as on_event:
        if out is not None:
            outcome, _ = train_run(model, source, parts, out, refit=True, on_event=on_event, stage=busy)
        else:
            outcome = fit_and_evaluate(model, parts, on_event=on_event, stage=busy)
    assert outcome.evaluation is not None
    assert alone.evaluation is not None
    protocol, history = outcome.evaluation.protocol, alone.history
    metrics = {"blend": outcome.evaluation.metrics, "rankformer": alone.evaluation.metrics, **_reference_metrics(parts)}
    examples = _examples(model, parts)
    if json:
        training = {"epochs": history.epochs, "best_epoch": history.best_epoch, "seconds": history.seconds}
        document = {"metrics": metrics, "protocol": protocol.to_dict(), "training": training, "examples": examples}
        show_json({**document, "run": None if out is None else str(out)})
        return
    _show(metrics, examples)
    show("* the reader did read it: it is in the test part, which training never saw", "")
    show(f"protocol: {protocol.line()}", "")
    user, item = examples[0]["user_id"], examples[0]["recommendations"][0]["item_id"]
    if out is None:
        show("try next:  rankformer demo --out runs/demo     (keeps the blend)")
        show(f"     then  rankformer recommend runs/demo --user {user}")
        return
    run = shlex.quote(str(out))
    show(f"kept in {run}, fitted again on everything they read: what is known of a reader is never recommended")
    show(f"try next:  rankformer recommend {run} --user {user}", f"      and  rankformer similar {run} --item {item}")


def _reference_metrics(parts: "Parts") -> dict[str, dict[str, float]]:
    """Return the metrics of popularity, and of the true probabilities: no method can rank better on average."""
    import torch

    from rankformer.data.demo import demo_oracle_scores
    from rankformer.evaluation.evaluator import evaluate
    from rankformer.models.popularity import Popularity
    from rankformer.scoring.embeddings import Embeddings
    from rankformer.scoring.recommender import Recommender

    train, probabilities = parts.train, torch.from_numpy(demo_oracle_scores())
    oracle = Embeddings(probabilities, torch.eye(train.num_items, dtype=probabilities.dtype))
    return {
        "popularity": evaluate(Popularity().fit(train), parts.test).metrics,
        "oracle": evaluate(Recommender(oracle, train.user_ids, train.item_ids, train), parts.test).metrics,
    }


def _examples(model: "Model", parts: "Parts") -> list[dict[str, Any]]:
    """Return, for the first few readers with test books, what they have read and what is recommended."""
    import numpy as np

    recommender, test, examples = model.recommender, parts.test, []
    assert recommender.titles is not None
    for reader in np.unique(test.users)[:EXAMPLE_USERS]:
        name = recommender.user_ids.ids[reader].as_py()
        read_later = test.item_ids.take(test.items[test.users == reader]).to_pylist()
        rows = [
            {**{key: row[key] for key in ("rank", "item_id", "title")}, "in_test": row["item_id"] in read_later}
            for row in model.recommend([name], EXAMPLE_LENGTH).to_dicts()
        ]
        history = recommender.titles.take(recommender.history_of(reader)).to_pylist()
        examples.append({"user_id": name, "history": history, "recommendations": rows})
    return examples


def _show(metrics: dict[str, dict[str, float]], examples: list[dict[str, Any]]) -> None:
    labels = {
        "blend": "blend (default)",
        "rankformer": "Rankformer",
        "popularity": "popularity",
        "oracle": "best reachable",
    }
    names = list(metrics["rankformer"])
    rows = [(labels[key], *values.values()) for key, values in metrics.items()]
    show_table(("method", *names), rows, title="on the books they read later (test part)", numbers=names)
    for example in examples:
        history = example["history"]
        more = f" and {len(history) - SHOWN_HISTORY} more" if len(history) > SHOWN_HISTORY else ""
        show(f"{example['user_id']} read {', '.join(history[:SHOWN_HISTORY])}{more}")
        for row in example["recommendations"]:
            show(f"  {row['rank']}. {'*' if row['in_test'] else ' '} {row['title']}")
        show("")
