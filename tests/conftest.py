"""What tests of every part share."""

import pytest
import torch


@pytest.fixture(scope="module")
def one_thread():
    """One thread for graphs that are far too small to share out."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
