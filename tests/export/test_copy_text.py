"""COPY's text form: any text comes back, and a line is always one row."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rankformer.errors import DataError
from rankformer.export import copy_text
from rankformer.export.contents import VectorTable
from rankformer.export.copy_text import copy_lines, escape, parse_vectors, spell_vectors, unescape

TEXTS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"))
FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(st.lists(st.one_of(st.none(), TEXTS, st.text("\\ntrN.\t\n\r"))))
def test_any_text_comes_back(texts):
    escaped = escape(pa.array(texts, pa.string()), "title").to_pylist()
    assert [unescape(field) for field in escaped] == texts
    assert not any(set("\t\n\r") & set(field) for field in escaped)


def test_escapes_are_those_of_postgresql():
    given = pa.array(["a\tb", "a\nb", "a\rb", "a\\b", "\\N", None])
    assert escape(given, "id").to_pylist() == ["a\\tb", "a\\nb", "a\\rb", "a\\\\b", "\\\\N", "\\N"]


def test_a_nul_is_refused_by_name():
    with pytest.raises(DataError, match=r"the title 'a\\x00b' holds a NUL"):
        escape(pa.array(["fine", None, "a\0b"]), "title")


@given(arrays(np.float32, st.tuples(st.integers(1, 5), st.integers(1, 4)), elements=FINITE))
def test_every_number_comes_back_exactly(vectors):
    fields = spell_vectors(vectors).to_pylist()
    assert all(field[0] + field[-1] == "[]" for field in fields)
    assert np.array_equal(parse_vectors(fields, vectors.shape[1]), vectors)


def test_rows_are_the_same_however_they_are_batched(monkeypatch):
    table = VectorTable(pa.array(range(7)), np.arange(14, dtype=np.float32).reshape(7, 2), pa.array(list("abcdefg")))
    whole = "".join(copy_lines(table))
    assert whole.splitlines()[3] == "3\td\t[6,7]"
    monkeypatch.setattr(copy_text, "_NUMBERS_AT_ONCE", 5)
    parts = list(copy_lines(table))
    assert len(parts) == 4
    assert "".join(parts) == whole
