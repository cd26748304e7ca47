import numpy as np
import pyarrow as pa
import pytest

from rankformer.data import Interactions
from rankformer.data.writers import write_table
from rankformer.errors import DataError


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.parquet", "a.jsonl"])
def test_what_is_written_reads_back_the_same(tmp_path, name):
    table = pa.table(
        {
            "user": ["007", 'quo"te,comma', "new\nline\r", "tab\tå"],
            "item": [4, 4, 2, 9],
            "time": [3, 2, 1, 0],
            "weight": pa.array(np.array([0.1, 1, 2.5, 1e-20], dtype=np.float32)),
            "title": ["four", "four", None, "nine"],
        }
    )
    log = Interactions.from_arrow(table)
    write_table(log.to_arrow(), tmp_path / "deep" / name)
    again = Interactions.read(tmp_path / "deep" / name)
    assert again.fingerprint == log.fingerprint
    assert again.item_titles.to_pylist() == [None, "four", "nine"]


def test_unknown_extension(tmp_path):
    with pytest.raises(DataError, match=r"cannot write '\.xlsx'"):
        write_table(Interactions.from_indices([0], [0]).to_arrow(), tmp_path / "a.xlsx")
