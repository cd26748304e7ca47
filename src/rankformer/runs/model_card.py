"""`README.md` of a run folder: a model card in the form of the Hugging Face Hub, made from the manifest.

It is for people and not a file of the run: the manifest does not list it and loading does not read it. Its last line
has the checksum of what stands above, so that a card that was edited is left alone when the run is replaced.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rankformer.evaluation.protocol import Protocol
from rankformer.files import write_bytes_atomic

CARD = "README.md"
_MARK = "<!-- rankformer model card "
_COUNTS = ("users", "items", "train_interactions", "valid_interactions", "test_interactions")


def write_card(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write the card of a run, unless a README.md of the user's own is there."""
    if not (folder / CARD).exists() and not (folder / CARD).is_symlink():
        text = card_of(manifest)
        write_bytes_atomic(folder / CARD, f"{text}{_MARK}{_checksum(text)} -->\n".encode())


def remove_card(folder: Path) -> None:
    """Remove a card that nobody has edited."""
    path = folder / CARD
    if path.is_symlink() or not path.is_file():
        return
    with suppress(UnicodeDecodeError):
        text, mark, checksum = path.read_text(encoding="utf-8").rpartition(_MARK)
        if mark and checksum == f"{_checksum(text)} -->\n":
            path.unlink()


def card_of(manifest: Mapping[str, Any]) -> str:
    """Return the card: metadata as YAML, then what the model is, how it was measured and how to use it."""
    model, data, metrics = manifest["model"], manifest["data"], manifest["metrics"]
    name = str(data.get("name", "unknown data"))
    # JSON is YAML, and keeps any string in its quotes.
    front: dict[str, Any] = {
        "library_name": "rankformer",
        "tags": ["recommender-systems", "collaborative-filtering", "implicit-feedback", model],
    }
    if metrics:
        measured = [{"type": key, "value": round(value or 0.0, 4), "name": key} for key, value in metrics.items()]
        task = {"type": "recommendation", "name": "Top-K recommendation"}
        dataset = {"type": name, "name": name, "split": "test"}
        front["model-index"] = [
            {"name": model, "results": [{"task": task, "dataset": dataset, "metrics": measured}]},
        ]
    size = [(key.replace("_", " "), f"{data[key]:,}") for key in _COUNTS if isinstance(data.get(key), int)]
    lines = ["---", *(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in front.items()), "---", ""]
    lines += [f"# {_plain(model)} on {_plain(name)}", ""]
    lines += [
        "A recommender trained with `rankformer`. It ranks the items of one catalogue for the users of one log.",
        "",
    ]
    lines += _table(("data", ""), [("name", name), *size, ("fingerprint", data.get("fingerprint", ""))])
    if metrics:
        warm = manifest.get("warm_metrics", {})
        heading = ("metric", "test", *(["warm users"] if warm else []))
        lines += ["## Metrics", "", *_table(heading, [(key, *_measured(key, metrics, warm)) for key in metrics])]
        with suppress(KeyError, TypeError):  # of a run that was saved by hand
            lines += [_plain(Protocol.from_dict(manifest["protocol"]).line()), ""]
    if manifest.get("refit"):
        lines += ["The saved model was then fitted again on all parts; the metrics are from before that.", ""]
    settings = [*manifest["settings"].items(), ("seed", manifest["seed"])]
    lines += ["## Hyperparameters", "", *_table(("setting", "value"), settings)]
    lines += ["## Use", "", "```python", "from rankformer import load_model", ""]
    lines += ['load_model("FOLDER").recommend(k=10)', "```", ""]
    lines += [
        "Users that the log does not know need a history. Lists repeat what the log shows, its biases included.",
        "",
    ]
    made = ", ".join(f"{package} {version}" for package, version in manifest["versions"].items())
    lines += [f"Made {manifest.get('created', '')} with {_plain(made)}.", ""]
    return "\n".join(lines)


def _measured(key: str, *columns: Mapping[str, Any]) -> list[str]:
    return ["" if column.get(key) is None else f"{column[key]:.4f}" for column in columns if column]


def _table(headings: Iterable[str], rows: Iterable[Iterable[Any]]) -> list[str]:
    headings = list(headings)
    body = [[_plain(value if isinstance(value, str) else json.dumps(value)) for value in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in (headings, ["---"] * len(headings), *body)] + [""]


def _plain(text: str) -> str:
    """Return a string that Markdown shows as it is, on one line."""
    for letter in "\\`*_[]<>|#":
        text = text.replace(letter, f"\\{letter}")
    return " ".join(text.split())


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
