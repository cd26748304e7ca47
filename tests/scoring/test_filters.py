"""Expressions over attributes against plain Python, and their errors; limits and boosts against brute force."""

import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankformer.errors import FilterError
from rankformer.scoring.filters import MAX_DEPTH, MAX_LENGTH, ListRules, where_mask
from rankformer.scoring.seen_items import SeenItems
from rankformer.scoring.top_k import top_k, top_k_reference

from .test_top_k import TableScorer, assert_same

COLUMNS = {
    "price": pa.array([10.0, 50.0, None, 7.5]),
    "stock": pa.array([1, 0, 1, None]),
    "level": pa.array([1, 2, 3, 4]),
    "new": pa.array([True, None, False, True]),
    "brand": pa.array(["acme", "apex", None, "o'hara"]),
    "tags": pa.array([["wool", "red"], [], None, ["red"]]),
    "on sale": pa.array([False, True, True, False]),
    "since": pa.array(["2026-01-01", "2026-05-01", None, "2025-12-31"]).cast(pa.timestamp("s")),
    "größe": pa.array(["S", "M", "L", "M"]),
}


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("price < 50", [0, 3]),
        ("price <= 50", [0, 1, 3]),
        ("price>=10", [0, 1]),
        ("price = 7.5", [3]),
        ("price != 10", [1, 3]),
        ("price <> 10", [1, 3]),
        ("price > -1e3", [0, 1, 3]),
        ("not price < 50", [1]),  # an unknown price is neither below nor above
        ("price is null", [2]),
        ("price is not null", [0, 1, 3]),
        ("stock", [0, 2]),
        ("new", [0, 3]),
        ("not new", [2]),
        ("new = false", [2]),
        ("brand = 'acme' or brand = 'apex'", [0, 1]),
        ("brand in ('acme', 'apex')", [0, 1]),
        ("brand not in ('acme')", [1, 3]),
        ("brand = 'o''hara'", [3]),
        ("brand contains 'p'", [1]),
        ("tags contains 'red'", [0, 3]),
        ("tags not contains 'red'", [1]),
        ('"on sale"', [1, 2]),
        ("level < 2 or level > 3 and new", [0, 3]),  # and binds before or
        ("(level < 2 or level > 3) and new", [0, 3]),
        ("(level < 3 or level > 3) and not (new or stock)", []),
        ("since >= '2026-01-01'", [0, 1]),
        ("größe = 'M' AND NOT Level_is_no_keyword", None),
        ("LEVEL", None),  # names keep their case
        ("new and null", None),
    ],
)
def test_expressions(text, rows):
    if rows is None:
        with pytest.raises(FilterError):
            where_mask(text, COLUMNS)
    else:
        assert where_mask(text, COLUMNS).nonzero()[0].tolist() == rows


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected the name of a column, found the end at position 1"),
        ("price <", "expected a number, true, false or a string in single quotes, found the end at position 8"),
        ("price < 'x'", "'price' is compared with a number, found \"'x'\" at position 9"),
        ("brand = 5", "'brand' is compared with a string in single quotes, found '5' at position 9"),
        ("new = 1", "'new' is compared with true or false"),
        ("cost < 5", "no column 'cost' at position 1; there are price, stock"),
        ("level", "'level' is no boolean; expected a comparison after it, found the end"),
        ("price < 5 brand = 'x'", "expected and, or, or the end, found 'brand' at position 11"),
        ("(price < 5", "expected ')', found the end at position 11"),
        ("brand = 'x", "a string that is never closed at position 9"),
        ("price ; 5", "found ';' at position 7"),
        ("tags = 'red'", "'tags' is a list; ask whether it contains a value"),
        ("since > 'yesterday'", "'since' is compared with a date"),
        ("__import__('os')", "no column '__import__'"),
        ("brand not 'x'", "expected in or contains after not"),
        ("price contains 'x'", "neither a string nor a list"),
        ("(" * (MAX_DEPTH + 2), "within each other"),
        ("not " * 5000 + "new", "characters; at most"),
        ("new and " * (MAX_LENGTH // 7), "characters; at most"),
    ],
)
def test_errors_say_where_and_what(text, message):
    with pytest.raises(FilterError) as error:
        where_mask(text, COLUMNS)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300


@st.composite
def expressions(draw, depth=3):
    """An expression, and what it says of a row in plain Python: True, False or None for unknown."""
    kind = draw(st.sampled_from(["compare", "in", "null", "bare"] + ["and", "or", "not"] * (depth > 0)))
    if kind == "compare":
        sign, value = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">="])), draw(st.integers(-3, 3))
        compare = {
            "=": int.__eq__,
            "!=": int.__ne__,
            "<": int.__lt__,
            "<=": int.__le__,
            ">": int.__gt__,
            ">=": int.__ge__,
        }
        return f"a {sign} {value}", lambda row: None if row["a"] is None else compare[sign](row["a"], value)
    if kind == "in":
        values = draw(st.lists(st.sampled_from("xyz"), min_size=1))
        listed = ", ".join(f"'{value}'" for value in values)
        return f"b in ({listed})", lambda row: None if row["b"] is None else row["b"] in values
    if kind == "null":
        return "b is null", lambda row: row["b"] is None
    if kind == "bare":
        return "c", lambda row: row["c"]
    left, says_left = draw(expressions(depth - 1))
    if kind == "not":
        return f"not ({left})", lambda row: None if says_left(row) is None else not says_left(row)
    right, says_right = draw(expressions(depth - 1))
    decided = kind == "or"  # what decides the outcome whatever the other side is

    def both(row):
        sides = {says_left(row), says_right(row)}
        return decided if decided in sides else None if None in sides else not decided

    return f"({left}) {kind} ({right})", both


@given(expressions(), st.data())
@settings(max_examples=200, deadline=None)
def test_any_expression_means_what_it_means_in_plain_python(expression, data):
    text, says = expression
    value = {
        "a": st.none() | st.integers(-3, 3),
        "b": st.none() | st.sampled_from("xyz"),
        "c": st.none() | st.booleans(),
    }
    rows = data.draw(st.lists(st.fixed_dictionaries(value), min_size=1, max_size=8))
    types = {"a": pa.int64(), "b": pa.string(), "c": pa.bool_()}
    columns = {name: pa.array([row[name] for row in rows], kind) for name, kind in types.items()}
    assert where_mask(text, columns).tolist() == [says(row) is True for row in rows]


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_lists_under_rules_are_those_of_a_walk_down_the_whole_ranking(data):
    n, m, k = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 300)), data.draw(st.integers(1, 8))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 10**6)))
    # Few distinct scores: ties are everywhere.
    table = torch.randint(0, data.draw(st.sampled_from([2, 5, 1000])), (n, m), generator=generator).float()
    limits = []
    for values in data.draw(st.lists(st.sampled_from([1, 2, 30]), max_size=2)):
        codes = torch.randint(-1, values, (m,), generator=generator)
        limits.append((codes, data.draw(st.integers(1, 3))))
    closed = torch.rand(m, generator=generator) < data.draw(st.sampled_from([0.0, 0.5, 0.99]))
    boost = torch.randint(-2, 3, (m,), generator=generator).float() if data.draw(st.booleans()) else None
    rules = ListRules(~closed, boost, tuple(limits))
    users, items = torch.rand(n, m, generator=generator).lt(0.2).nonzero().T.numpy()
    seen = SeenItems.from_pairs(users, items, n, m)
    everyone = torch.arange(n)
    found = top_k(TableScorer(table), everyone, k, seen=seen, rules=rules, max_block_bytes=m * 4 * 2)
    assert_same(found, top_k_reference(TableScorer(table), everyone, k, seen=seen, rules=rules))
    for row in found.items.tolist():
        listed = [item for item in row if item >= 0]
        assert not closed[listed].any()
        for codes, most in limits:
            values = [value for value in codes[listed].tolist() if value >= 0]
            assert all(values.count(value) <= most for value in values)


def test_a_boost_is_so_many_standard_deviations_of_the_users_own_scores():
    table = torch.tensor([[0.0, 2.0, 4.0], [10.0, 10.0, 16.0]])  # standard deviations sqrt(8/3) and sqrt(8)
    rules = ListRules(boost=torch.tensor([2.0, 0.0, -1.0]))
    found = top_k(TableScorer(table), torch.arange(2), 3, rules=rules)
    spread = [(8 / 3) ** 0.5, 8**0.5]
    assert found.items.tolist() == [[0, 2, 1], [0, 2, 1]]
    expected = [[2 * spread[0], 4 - spread[0], 2.0], [10 + 2 * spread[1], 16 - spread[1], 10.0]]
    torch.testing.assert_close(found.scores, torch.tensor(expected))


def test_a_score_that_is_minus_infinity_stays_out_of_the_spread_and_out_of_the_list():
    table = torch.tensor([[1.0, float("-inf"), 3.0]])
    found = top_k(TableScorer(table), torch.arange(1), 3, rules=ListRules(boost=torch.ones(3)))
    assert found.items.tolist() == [[2, 0, -1]]
    torch.testing.assert_close(found.scores[0, :2], torch.tensor([4.0, 2.0]))
