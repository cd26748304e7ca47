"""A run folder as an MLflow model that serves: `mlflow models predict`, `mlflow models serve`, `mlflow.pyfunc`.

The model holds the run folder as it is and the name of this module, which loads it with every checksum verified; no
Python object is pickled. Asked with a table of `user_id`, or of `history` (a list of item ids for each new user), it
answers with one list per row: `items` and `scores`, best first.
"""

import os
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rankformer.errors import ConfigError
from rankformer.runs.saved import load_run
from rankformer.scoring.recommendations import Recommendations

if TYPE_CHECKING:
    import pandas as pd

# The parameters of a prediction with their types and defaults, as of `Recommender.recommend`.
_PARAMETERS: dict[str, tuple[str, Any]] = {
    "k": ("long", 10),
    "include_seen": ("boolean", False),
    "fallback": ("string", ""),
}


def save_model(run_folder: str | os.PathLike[str], path: str | os.PathLike[str], mlflow_model: Any = None) -> None:
    """Write an MLflow model of a run folder to `path`; a folder that is not a whole run is a RunFolderError."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    import pandas as pd
    from mlflow import pyfunc
    from mlflow.models import Model, ModelSignature
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema
    from mlflow.types.schema import Array

    folder = Path(run_folder).resolve()
    recommender = load_run(folder).recommender
    users, items = (
        DataType.long if pa.types.is_integer(_plain(ids).type) else DataType.string
        for ids in (recommender.user_ids.ids, recommender.catalogue.ids)
    )
    inputs = [ColSpec(users, "user_id", required=not recommender.can_fold_in)]
    if recommender.can_fold_in:
        inputs.append(ColSpec(Array(items), "history", required=False))
    outputs = [ColSpec(Array(items), "items"), ColSpec(Array(DataType.double), "scores")]
    parameters = ParamSchema([ParamSpec(name, *each) for name, each in _PARAMETERS.items()])
    model = Model() if mlflow_model is None else mlflow_model
    model.add_flavor("rankformer", rankformer_version=version("rankformer"), run=f"data/{folder.name}")
    pyfunc.save_model(
        path=os.fspath(path),
        loader_module=__name__,
        data_path=str(folder),
        mlflow_model=model,
        signature=ModelSignature(Schema(inputs), Schema(outputs), parameters),
        input_example=pd.DataFrame({"user_id": pd.Series(_plain(recommender.user_ids.ids[:1]))}),
        pip_requirements=[f"{package}=={version(package)}" for package in ("rankformer", "mlflow", "pandas")],
    )


def log_model(run_folder: str | os.PathLike[str], name: str = "model", **options: Any) -> Any:
    """Log an MLflow model of a run folder to the active MLflow run; options as of `mlflow.models.Model.log`."""
    from mlflow.models import Model

    return Model.log(artifact_path=None, name=name, flavor=sys.modules[__name__], run_folder=run_folder, **options)


def _load_pyfunc(data_path: str) -> "_Served":
    """Return what MLflow asks for predictions; the name is MLflow's."""
    return _Served(Path(data_path))


class _Served:
    def __init__(self, folder: Path) -> None:
        self.recommender = load_run(folder).recommender

    def predict(self, model_input: "pd.DataFrame", params: Mapping[str, Any] | None = None) -> "pd.DataFrame":
        """Return the columns `items` and `scores`, a list in each for every row of the input."""
        import pandas as pd

        asked: dict[str, Any] = {name: default for name, (_, default) in _PARAMETERS.items()} | dict(params or {})
        fallback = asked.pop("fallback") or None
        if "history" in model_input:
            ids = self.recommender.item_ids.ids.type
            histories = {row: _values(items, ids) for row, items in enumerate(model_input["history"])}
            names, found = list(histories), self.recommender.recommend_histories(histories, **asked)
        elif "user_id" in model_input:
            names = _values(model_input["user_id"], self.recommender.user_ids.ids.type)
            found = self.recommender.recommend(list(dict.fromkeys(names)), fallback=fallback, **asked)
        else:
            raise ConfigError(f"expected a column user_id or history; found {', '.join(map(str, model_input))}")
        lists = _lists_of(found)
        return pd.DataFrame([lists.get(name, ([], [])) for name in names], columns=["items", "scores"])


def _plain(ids: pa.Array) -> pa.Array:
    """Return raw ids in MLflow's types: 64-bit integers, or strings."""
    return ids.cast(pa.int64() if pa.types.is_integer(ids.type) and ids.type != pa.uint64() else pa.string())


def _values(ids: Any, kind: pa.DataType) -> list[Any]:
    """Return raw ids as the run has them, from what MLflow's types can hold of them."""
    try:
        return list(pa.array(list(ids)).cast(kind).to_pylist())
    except (pa.ArrowException, TypeError) as error:
        raise ConfigError(f"expected ids of type {kind} without gaps; {error}") from error


def _lists_of(found: Recommendations) -> dict[Any, tuple[list[Any], list[float]]]:
    lists: dict[Any, tuple[list[Any], list[float]]] = {}
    users, items, scores = (found.table[name].combine_chunks() for name in ("user_id", "item_id", "score"))
    for user, item, score in zip(users.to_pylist(), _plain(items).to_pylist(), scores.to_pylist(), strict=True):
        of_user = lists.setdefault(user, ([], []))
        of_user[0].append(item)
        of_user[1].append(score)
    return lists
