"""What `train --track` and `tune --track` leave behind, read with each tracker's own code."""

import json
import struct
from pathlib import Path

import pytest

from rankformer.runs.manifest import read_manifest
from rankformer.runs.training_log import read_log

from .conftest import SMALL, TINY

TESTED = {
    "TensorBoard": ("tracker", "tensorboard"),
    "MLflow": ("tracker", "mlflow"),
    "Weights & Biases": ("tracker", "wandb"),
}

TUNE = ["tune", "clicks.csv", *SMALL, "--model", "mf", "--epochs", "4", "--set", "embedding_dim=4", "--out", "search"]


def tensorboard_of(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return events


def wandb_records(file):
    """Yield the records of an offline run: blocks of 32 KiB with pieces of records, each after checksum, size, kind."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, whole = file.read_bytes(), 7, b""
    while at < len(data):
        left = 2**15 - at % 2**15
        if left < 7:  # no piece begins so near the end of a block
            at += left
            continue
        size, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        whole, at = whole + data[at + 7 : at + 7 + size], at + 7 + size
        if kind in (1, 4):  # a record in one piece, or its last piece
            record = Record()
            record.ParseFromString(whole)
            yield record
            whole = b""


def wandb_runs():
    """Return name, group, configuration, history, summary and exit code of each run in ./wandb, by name."""
    runs = {}
    for file in Path("wandb").glob("offline-run-*/run-*.wandb"):
        run = {"history": [], "summary": {}, "config": {}, "exit": None}
        for record in wandb_records(file):
            kind = record.WhichOneof("record_type")
            if kind == "run":
                run |= {"name": record.run.display_name, "group": record.run.run_group}
                run["config"] |= values_of(record.run.config.update)
            elif kind == "history":
                run["history"].append(values_of(record.history.item))
            elif kind == "summary":
                run["summary"] |= values_of(record.summary.update)
            elif kind == "exit":
                run["exit"] = record.exit.exit_code
        runs[run["name"]] = run
    return runs


def values_of(entries):
    return {each.key or ".".join(each.nested_key): json.loads(each.value_json) for each in entries}


def mlflow_runs():
    from mlflow import MlflowClient

    client = MlflowClient()
    experiment = client.get_experiment_by_name("rankformer")
    found = client.search_runs([experiment.experiment_id])
    return client, {run.info.run_name: run for run in found}


@pytest.mark.filterwarnings("ignore")
def test_a_training_in_all_three(cli, here):
    outcome = cli(
        "train", "clicks.csv", "--out", "runs/shop", *TINY, "--track", "tensorboard,mlflow", "--track", "wandb"
    )
    assert outcome.code == 0, outcome.err
    manifest, log = read_manifest(here / "runs" / "shop"), read_log(here / "runs" / "shop")
    valid = {event["epoch"]: event["ndcg@20"] for event in log if event["event"] == "validation"}
    loss = {event["epoch"]: event["loss"] for event in log if event["event"] == "epoch"}
    test, folder = manifest["metrics"]["ndcg@20"], str(here / "runs" / "shop")
    assert len(valid) == 2

    board = tensorboard_of(here / "runs" / "tensorboard" / "shop")
    assert {each.step: pytest.approx(each.value) for each in board.Scalars("valid/ndcg@20")} == valid
    assert {each.step: pytest.approx(each.value) for each in board.Scalars("train/loss")} == loss
    assert board.Scalars("test/ndcg@20")[0].value == pytest.approx(test)
    assert folder in board.Tensors("end/text_summary")[0].tensor_proto.string_val[0].decode()
    assert "refit/loss" in board.Tags()["scalars"]
    assert "_hparams_/session_start_info" in board.summary_metadata

    client, runs = mlflow_runs()
    run = runs["shop"]
    assert run.info.status == "FINISHED"
    assert run.data.tags["run_folder"] == folder
    assert (run.data.params["model"], run.data.params["embedding_dim"]) == ("rankformer", "8")
    assert run.data.params["data_fingerprint"] == manifest["data"]["fingerprint"]
    history = client.get_metric_history(run.info.run_id, "valid/ndcg_at_20")
    assert {each.step: each.value for each in history} == pytest.approx(valid)
    assert run.data.metrics["test/ndcg_at_20"] == pytest.approx(test)

    run = wandb_runs()["shop"]
    assert {row["step"]: row["valid/ndcg@20"] for row in run["history"] if "valid/ndcg@20" in row} == valid
    assert run["summary"]["test/ndcg@20"] == pytest.approx(test)
    assert (run["summary"]["run_folder"], run["config"]["embedding_dim"], run["exit"]) == (folder, 8, 0)


@pytest.mark.filterwarnings("ignore")
def test_a_search_in_all_three(cli, here):
    outcome = cli(*TUNE, "--trials", "2", "--track", "tensorboard,mlflow,wandb", "--json")
    assert outcome.code == 0, outcome.err
    first, second = outcome.json["trials"]
    best = outcome.json["best"]["value"]

    board = here / "tensorboard" / "search"
    assert [each.value for each in tensorboard_of(board).Scalars("ndcg@20")] == pytest.approx(
        [first["value"], second["value"]]
    )
    curve = tensorboard_of(board / "trial-1").Scalars("valid/ndcg@20")
    assert [[each.step, each.value] for each in curve] == [[e, pytest.approx(v)] for e, v in second["validations"]]

    _, runs = mlflow_runs()
    assert set(runs) == {"search", "trial-0", "trial-1"}
    assert runs["trial-1"].data.tags["mlflow.parentRunId"] == runs["search"].info.run_id
    assert float(runs["trial-1"].data.params["learning_rate"]) == second["settings"]["learning_rate"]
    assert runs["trial-1"].data.tags["state"] == "complete"
    assert runs["search"].data.metrics["valid/ndcg_at_20"] == pytest.approx(best)

    runs = wandb_runs()
    assert {run["group"] for run in runs.values()} == {"search"}
    assert runs["trial-0"]["summary"]["ndcg@20"] == pytest.approx(first["value"])

    again = cli(*TUNE, "--trials", "3", "--track", "tensorboard")
    assert again.code == 0
    assert {path.name for path in board.iterdir() if path.is_dir()} == {"trial-0", "trial-1", "trial-2"}


@pytest.mark.filterwarnings("ignore")
def test_a_training_that_stops_is_marked_and_a_resumed_one_is_whole(cli, here):
    (here / "mine.py").write_text("def stop(event):\n    if event.get('epoch') == 3: raise KeyboardInterrupt\n")
    command = ["train", "clicks.csv", "--out", "runs/shop", *TINY, "--track", "mlflow"]
    assert cli(*command, "--callback", "mine:stop").code == 130
    _, runs = mlflow_runs()
    assert runs["shop"].info.status == "FAILED"
    assert cli(*command, "--resume").code == 0
    client, _ = mlflow_runs()
    [run] = [each for each in client.search_runs([runs["shop"].info.experiment_id]) if each.info.status == "FINISHED"]
    steps = [each.step for each in client.get_metric_history(run.info.run_id, "train/loss")]
    assert steps == [1, 2, 3, 4]


@pytest.mark.filterwarnings("ignore")
def test_a_tracker_that_cannot_begin_or_fails_later(cli, here, monkeypatch):
    command = ["train", "clicks.csv", "--out", "runs/shop", *TINY, "--track"]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nonsense://here")
    refused = cli(*command, "mlflow")
    assert refused.code == 2
    assert "--track mlflow cannot begin" in refused.err
    assert not (here / "runs" / "shop" / "manifest.json").exists()
    monkeypatch.delenv("MLFLOW_TRACKING_URI")

    from torch.utils.tensorboard import SummaryWriter

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(SummaryWriter, "add_scalar", full)
    outcome = cli(*command, "tensorboard", "--overwrite")
    assert outcome.code == 0
    assert outcome.err.count("warning: tensorboard stopped taking events and is left out: OSError") == 1
    assert (here / "runs" / "shop" / "manifest.json").exists()
