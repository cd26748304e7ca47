import pytest

from rankformer.exhibits.ablation import VARIANTS, ablation_cells, show_ablation

from .conftest import called, made_up, table_row


@pytest.mark.parametrize(
    ("swapped", "words"), [(False, "the paper's order of effects"), (True, "not the paper's order of effects")]
)
def test_the_ablation_says_whether_the_order_is_the_papers(request_for, card, swapped, words):
    request = request_for(datasets=(called(card),))
    order = ["w/o normalization", "w/o negative pairs", "w/o offset", "w/o benchmark", "full"]
    if swapped:
        order[1], order[2] = order[2], order[1]
    cells = ablation_cells(request)
    assert [cell.settings["negatives"] for cell in cells] == ["push", "none", "push", "push", "push"]
    assert [cell.settings["benchmark"] for cell in cells] == [True, True, False, True, True]
    assert [cell.settings["alpha"] for cell in cells] == [2.0, 2.0, 2.0, 0.0, 2.0]
    assert [cell.settings["normalize"] for cell in cells] == [True, True, True, True, False]
    results = {cell.key: made_up(0.1 + 0.1 * order.index(name)) for cell, name in zip(cells, VARIANTS, strict=True)}
    content = show_ablation(request, results)
    assert words in content.findings[0]
    assert ("not" in content.findings[0].split(";")[0]) is swapped
    assert table_row(content.tables[0], "w/o benchmark")["NDCG@20 paper"] == "0.0641"


def test_an_ablation_with_a_gap_draws_no_conclusion(request_for, card):
    request = request_for(datasets=(called(card),))
    cells = ablation_cells(request)
    content = show_ablation(request, {cell.key: made_up(0.2) for cell in cells[:-1]})
    assert content.findings == (
        "ali-display: the order of effects is open, nothing was measured for w/o normalization.",
    )
