"""Every input that the attack once found wanting, made small: `attack.inputs` puts them into the folder beside this."""

import pytest
from attack.inputs import kept_cases, outcome, whole_cases


@pytest.mark.parametrize(("name", "case"), kept_cases().items())
def test_what_once_failed_is_read_or_refused_in_one_line(name, case, tmp_path):
    assert outcome(case, tmp_path) in ("read", "refused"), name


@pytest.mark.parametrize(("name", "case"), whole_cases().items())
def test_every_whole_case_is_read(name, case, tmp_path):
    assert outcome(case, tmp_path) == "read", name
