import numpy as np
import pytest

from rankformer.errors import ConfigError
from rankformer.planning.machine import memory_now, memory_of_machine, parse_size, peak_memory, show_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2GB", 2e9),
        ("1.5 gb", 1.5e9),
        ("8G", 8e9),
        ("512MiB", 512 * 2**20),
        ("1GiB", 2**30),
        ("100", 100),
        ("3kb", 3e3),
    ],
)
def test_sizes_are_read_as_people_write_them(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "much", "0GB", "-1GB", "2XB", "5iB", "GB"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ConfigError, match="expected a size such as 16GB"):
        parse_size(text)


def test_sizes_are_shown_in_round_units():
    assert show_size(1_848_000_000) == "1.85 GB"
    assert show_size(12_400_000) == "12 MB"


def test_a_process_grows_with_what_it_holds():
    before = memory_now()
    held = np.ones(60_000_000, dtype=np.uint8)
    assert memory_now() - before > 40_000_000
    assert before < peak_memory() < memory_of_machine()
    assert held.all()
