"""A run as an MLflow model: in Python, by `mlflow models predict`, and logged to a run."""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from rankformer import load_model
from rankformer.errors import RunFolderError
from rankformer.tracking.mlflow_model import log_model, save_model

TESTED = {"MLflow models": ("tool", "mlflow")}

pytestmark = pytest.mark.filterwarnings("ignore")


def lists_of(found, count):
    rows = found.to_pandas()
    return [rows["item_id"].tolist()[at : at + count] for at in range(0, len(rows), count)]


@pytest.fixture
def model(here, clicks_run):
    save_model(clicks_run, "model")
    return "model"


def test_lists_for_users_and_histories(model, clicks_run):
    import mlflow

    served, own = mlflow.pyfunc.load_model(model), load_model(clicks_run)
    found = served.predict(pd.DataFrame({"user_id": ["u3", "u1", "u3"]}), params={"k": 2})
    assert found["items"].tolist() == lists_of(own.recommend(["u3", "u1", "u3"], k=2), 2)
    found = served.predict(pd.DataFrame({"history": [[0, 2], [1]]}), params={"k": 3})
    assert found["items"].tolist() == lists_of(own.recommend(histories={0: [0, 2], 1: [1]}, k=3), 3)
    with pytest.raises(Exception, match="nobody"):
        served.predict(pd.DataFrame({"user_id": ["nobody"]}))
    found = served.predict(pd.DataFrame({"user_id": ["nobody"]}), params={"fallback": "popularity", "k": 1})
    assert len(found["items"][0]) == 1


def test_mlflow_models_predict(model, clicks_run):
    Path("users.json").write_text('{"dataframe_records": [{"user_id": "u3"}, {"user_id": "u1"}], "params": {"k": 2}}')
    command = [sys.executable, "-m", "mlflow", "models", "predict", "--env-manager", "local"]
    command += ["-m", model, "-i", "users.json", "-t", "json", "-o", "lists.json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = json.loads(Path("lists.json").read_text())["predictions"]
    own = load_model(clicks_run).recommend(["u3", "u1"], k=2)
    assert [row["items"] for row in rows] == lists_of(own, 2)
    assert [score for row in rows for score in row["scores"]] == pytest.approx(own.to_pandas()["score"].tolist())


def test_nothing_in_it_is_pickled(model):
    names = {path.name for path in Path(model).rglob("*") if path.is_file()}
    assert not {name for name in names if name.endswith((".pkl", ".pickle", ".pt", ".joblib"))}
    assert "loader_module: rankformer.tracking.mlflow_model" in Path(model, "MLmodel").read_text()


def test_a_logged_model_and_a_damaged_one(here, clicks_run):
    import mlflow

    with mlflow.start_run():
        logged = log_model(clicks_run, name="shop")
    found = mlflow.pyfunc.load_model(logged.model_uri).predict(pd.DataFrame({"user_id": ["u3"]}), params={"k": 2})
    assert found["items"].tolist() == lists_of(load_model(clicks_run).recommend(["u3"], k=2), 2)
    save_model(clicks_run, "damaged")
    (here / "damaged" / "data" / "shop" / "users.parquet").write_bytes(b"x")
    with pytest.raises(RunFolderError, match=r"users\.parquet"):
        mlflow.pyfunc.load_model("damaged")
