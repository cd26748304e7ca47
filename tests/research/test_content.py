import pytest

from rankformer.research.content import Table


def test_a_row_of_another_width_is_a_mistake():
    with pytest.raises(ValueError, match="2 headings"):
        Table("t", ("a", "b"), (("1",),))
