"""The scorer as a program that other runtimes execute: ONNX, and torch.export.

    users (b,), exclude (p, 2), k  ->  items (b, k), scores (b, k)

`users` are indices of users; `exclude` holds (position in `users`, index of an item) of what a list must not have, for
example what its user has already, and may be empty; `items` are indices of items, best first. Where fewer than k items
remain, the rest have the score -inf.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankformer.errors import DataError, extra_module
from rankformer.export.contents import Contents, Tables
from rankformer.export.targets import Indices, NumpyArrays

_IDS = ("user_ids.parquet", "item_ids.parquet")
_NOTHING = np.zeros((0, 2), dtype=np.int64)
MAX_ONNX_BYTES = 2**31 - 2**20  # of a file that protobuf can read


class OnnxProgram(NumpyArrays):
    """scorer.onnx, opset 17, without a custom operator; the ids of users and items beside it."""

    name = "onnx"
    files = ("scorer.onnx", *_IDS)

    def __init__(self) -> None:
        self.onnx: Any = extra_module("onnx", "onnx")

    def write(self, contents: Contents, folder: Path) -> None:
        size = sum(table.vectors.nbytes for table in contents.tables)
        if size > MAX_ONNX_BYTES:
            raise DataError(f"embeddings of {size:,} bytes do not fit into an ONNX file of 2 GB; use --to torch-export")
        super().write(contents, folder)
        helper, kinds = self.onnx.helper, self.onnx.TensorProto
        tables = [
            self.onnx.numpy_helper.from_array(table.vectors, name)
            for name, table in zip(("users_table", "items_table"), contents.tables, strict=True)
        ]
        lowest = helper.make_tensor("lowest", kinds.FLOAT, [1], [-np.inf])
        nodes = [
            helper.make_node("Gather", ["users_table", "users"], ["vectors"]),
            helper.make_node("Gemm", ["vectors", "items_table"], ["all_scores"], transB=1),
            helper.make_node("Shape", ["exclude"], ["excluded"], start=0, end=1),
            helper.make_node("ConstantOfShape", ["excluded"], ["low"], value=lowest),
            helper.make_node("ScatterND", ["all_scores", "exclude", "low"], ["allowed"]),
            helper.make_node("TopK", ["allowed", "k"], ["scores", "items"]),
        ]
        shapes = {"users": ["b"], "exclude": ["p", 2], "k": [1], "items": ["b", "n"], "scores": ["b", "n"]}
        values = {
            name: helper.make_tensor_value_info(name, kinds.FLOAT if name == "scores" else kinds.INT64, shape)
            for name, shape in shapes.items()
        }
        graph = helper.make_graph(nodes, "scorer", list(values.values())[:3], list(values.values())[3:], tables)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        helper.set_model_props(model, {"rankformer": contents.metadata_json()})
        self.onnx.checker.check_model(model)
        self.onnx.save_model(model, str(folder / "scorer.onnx"))

    def write_vectors(self, side: str, vectors: NDArray[np.float32], folder: Path) -> None:
        """Leave them to the program."""

    def read_vectors(self, side: str, folder: Path) -> NDArray[np.float32]:
        model = self.onnx.load(str(folder / "scorer.onnx"))
        found = {table.name: table for table in model.graph.initializer}
        vectors: NDArray[np.float32] = self.onnx.numpy_helper.to_array(found[f"{side}s_table"])
        return vectors

    def searches(self, folder: Path, tables: Tables, users: Indices, k: int) -> dict[str, Indices]:
        """Return what onnxruntime finds, or the evaluator of the package onnx where that is missing."""
        path, inputs = str(folder / "scorer.onnx"), {"users": users, "exclude": _NOTHING, "k": np.array([k])}
        try:
            import onnxruntime
        except ImportError:
            from onnx.reference import ReferenceEvaluator

            return {f"onnx {self.onnx.__version__}": ReferenceEvaluator(path).run(["items"], inputs)[0]}
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        return {f"onnxruntime {onnxruntime.__version__}": session.run(["items"], inputs)[0]}


class TorchProgram(NumpyArrays):
    """scorer.pt2, for `torch.export.load`; the ids of users and items beside it. k is at least 2."""

    name = "torch-export"
    files = ("scorer.pt2", *_IDS)

    def write(self, contents: Contents, folder: Path) -> None:
        super().write(contents, folder)
        scorer = _Scorer(*(torch.from_numpy(table.vectors) for table in contents.tables))
        size, any_size = len(contents.tables.items.ids), torch.export.Dim.DYNAMIC
        example = (torch.zeros(3, dtype=torch.int64), torch.zeros((4, 2), dtype=torch.int64), min(size, 5))
        shapes = {"users": {0: any_size}, "exclude": {0: any_size}, "k": any_size if size > 5 else None}
        program = torch.export.export(scorer, example, dynamic_shapes=shapes)
        torch.export.save(program, folder / "scorer.pt2", extra_files={"rankformer.json": contents.metadata_json()})

    def write_vectors(self, side: str, vectors: NDArray[np.float32], folder: Path) -> None:
        """Leave them to the program."""

    def read_vectors(self, side: str, folder: Path) -> NDArray[np.float32]:
        program = torch.export.load(folder / "scorer.pt2")
        vectors: NDArray[np.float32] = program.state_dict[f"{side}s_table"].numpy()
        return vectors

    def searches(self, folder: Path, tables: Tables, users: Indices, k: int) -> dict[str, Indices]:
        """Return what the loaded program finds."""
        run = torch.export.load(folder / "scorer.pt2").module()
        items, _ = run(torch.from_numpy(users), torch.from_numpy(_NOTHING), k)
        return {f"torch {torch.__version__}": items.numpy()}


class _Scorer(torch.nn.Module):
    def __init__(self, users: Tensor, items: Tensor) -> None:
        super().__init__()
        self.register_buffer("users_table", users)
        self.register_buffer("items_table", items)

    def forward(self, users: Tensor, exclude: Tensor, k: int) -> tuple[Tensor, Tensor]:
        scores = self.get_buffer("users_table")[users] @ self.get_buffer("items_table").T
        lowest = scores.new_full((), -torch.inf)
        best = torch.topk(scores.index_put((exclude[:, 0], exclude[:, 1]), lowest), k, dim=1)
        return best.indices, best.values
