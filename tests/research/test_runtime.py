from rankformer.research.comparison import comparison_cells
from rankformer.research.runtime import runtime_cells, show_runtime

from .conftest import called, made_up, table_row


def test_the_runtime_table_uses_the_comparisons_trainings_and_says_how_they_ran(request_for, card):
    request = request_for(datasets=(called(card),))
    cells = runtime_cells(request)
    assert [cell.key for cell in cells] == [cell.key for cell in comparison_cells(request)]
    workers = {"rankformer": 1, "lightgcn": 3}
    content = show_runtime(request, {c.key: made_up(0.2, workers[c.model]) for c in cells if c.model in workers})
    ours, light = (table_row(content.tables[0], name) for name in ("Rankformer", "LightGCN"))
    assert (ours["timed"], light["timed"]) == ("1 thread, alone", "1 thread, beside 2 others")
    assert (ours["seconds per epoch"], ours["seconds to best"], ours["best epoch"]) == ("0.5", "15.0", "20")
    assert ours["paper's seconds (GPU)"] == "109"
    assert light["paper's seconds (GPU)"] == "1,687 / 99 (source code / rewrite)"
    assert content.findings == (
        "ali-display: Rankformer reaches its best validation after 15.0 s here, the paper's GPU run took 109 s.",
    )


def test_without_results_it_is_whole(request_for):
    content = show_runtime(request_for(), {})
    assert content.findings == ()
    assert table_row(content.tables[0], "MF")["timed"] == "not run"
