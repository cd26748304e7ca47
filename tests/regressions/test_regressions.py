"""Every case that the attack once found wanting, made small: the campaigns put them into the folders beside this."""

import httpx
import pytest
from attack.__main__ import CAMPAIGNS, REPLAYS, Attack
from attack.inputs import outcome, whole_cases
from attack.regressions import TIMED, folder, kept, kind

CASES = [pytest.param(name, case, id=f"{name}-{place}") for name in REPLAYS for place, case in kept(name)]


@pytest.mark.parametrize(("campaign", "case"), CASES)
def test_what_once_failed_is_fine(campaign, case, tmp_path):
    if campaign in ("requests", "bodies"):
        with Attack(1.0, 0, tmp_path)._serving("service") as (service, _), httpx.Client(base_url=service.url) as client:
            got = REPLAYS[campaign](case, service, client)
    else:
        got = REPLAYS[campaign](case, tmp_path)
    assert kind(got) == "", got


def test_every_campaign_is_repeated_or_depends_on_a_moment():
    assert {*REPLAYS} | {*TIMED} == {*CAMPAIGNS}
    assert not {*REPLAYS} & {*TIMED}
    places = [path for path in folder().iterdir() if path.is_dir() and path.name != "__pycache__"]
    assert {path.name for path in places} <= {*REPLAYS}
    assert sum(len(list(path.iterdir())) for path in places) == len(CASES)


@pytest.mark.parametrize(("name", "case"), whole_cases().items())
def test_every_whole_case_is_read(name, case, tmp_path):
    assert outcome(case, tmp_path) == "read", name
