"""Whatever is sent, the answer is a 4xx with a short JSON body, or a right answer; never a 5xx."""

from datetime import UTC, datetime, timedelta, timezone
from itertools import islice

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import builds, datetimes, integers, sampled_from
from schemathesis import GenerationMode

from rankformer.serving.settings import ServiceSettings

from .clients import asking, serving_in_thread
from .malformed import at_random, by_hand

# What each format of the description looks like for a run without attributes.
for name, texts in {
    "expression": ["cold", "not cold", "title contains 'e'"],
    "limit": ["2:title", "1:cold"],
    "boost": ["0.5:cold", "-1:not cold"],
}.items():
    schemathesis.openapi.format(name, sampled_from(texts))
# Moments of events, in any time zone, are those of the past.
offsets = builds(lambda minutes: timezone(timedelta(minutes=minutes)), integers(-14 * 60, 14 * 60))
past = datetimes(max_value=datetime.now(UTC).replace(tzinfo=None) - timedelta(days=1), timezones=offsets)
schemathesis.openapi.format("date-time", past.map(datetime.isoformat))
FINE = {200, 400, 401, 403, 404, 405, 413, 415, 422}


@pytest.fixture(scope="module")
def client(run_folder, tmp_path_factory):
    with asking(run_folder, ServiceSettings(journal=tmp_path_factory.mktemp("journal"))) as client:
        yield client


@pytest.mark.parametrize(
    "make", [lambda: islice(by_hand(), 0, None, 4), lambda: at_random(300)], ids=["by hand", "at random"]
)
def test_no_request_breaks_the_service(client, make):
    loads = client.app.state.service.current
    for method, path, headers, body in make():
        answer = client.request(method, path, headers=headers, content=body)
        assert answer.status_code in FINE, (method, path, body[:100], answer.text[:200])
        if answer.status_code != 200 and method != "HEAD":
            assert set(answer.json()) == {"error"}
            assert set(answer.json()["error"]) == {"code", "message"}
            assert len(answer.content) < 600
            assert "Traceback" not in answer.text
    assert client.app.state.service.current is loads
    assert client.get("/v1/recommend/u1").status_code == 200


@pytest.fixture(scope="module")
def schema(run_folder, tmp_path_factory):
    with serving_in_thread(run_folder, ServiceSettings(journal=tmp_path_factory.mktemp("journal"))) as url:
        yield schemathesis.openapi.from_url(f"{url}/openapi.json")


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_the_service_is_as_described(schema, mode):
    """Requests made from the description, right or wrong: each status, header and body is one that it foresees."""
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) > 12
    for operation in operations:
        if mode is GenerationMode.NEGATIVE and not (operation.body or operation.query):
            continue  # there is nothing to get wrong

        @settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case):
            case.call_and_validate()

        ask()
