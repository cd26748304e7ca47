import asyncio
import threading

import pytest

from rankformer.serving.batching import MicroBatcher
from rankformer.serving.workers import Closed, Full


class Recorder:
    """Answers subject * 10, remembers each call, and waits for its gate."""

    def __init__(self):
        self.calls = []
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, key, subjects):
        self.gate.wait()
        self.calls.append((key, list(subjects)))
        if key == "bad":
            raise ZeroDivisionError
        return [subject * 10 for subject in subjects]


def run(scenario, **sizes):
    recorder = Recorder()
    sizes = {"batch_size": 4, "queue_size": 100, **sizes}

    async def main():
        batcher = MicroBatcher(recorder, **sizes)
        try:
            await scenario(batcher, recorder)
        finally:
            recorder.gate.set()
            batcher.close()

    asyncio.run(main())
    return recorder.calls


async def wait_behind(batcher, recorder):
    """Hold the thread with one question; return its task."""
    recorder.gate.clear()
    first = asyncio.ensure_future(batcher.ask("first", 0))
    while len(batcher) or not batcher._busy:
        await asyncio.sleep(0)
    return first


def test_a_lone_question_is_answered_at_once_and_alone():
    async def scenario(batcher, recorder):
        assert await batcher.ask("a", 7) == 70
        assert await batcher.ask("a", 8) == 80

    assert run(scenario) == [("a", [7]), ("a", [8])]


def test_what_waits_is_answered_together_in_groups_and_in_turn():
    async def scenario(batcher, recorder):
        first = await wait_behind(batcher, recorder)
        asked = [asyncio.ensure_future(batcher.ask("ab"[number % 2], number)) for number in range(6)]
        await asyncio.sleep(0)
        recorder.gate.set()
        assert await asyncio.gather(*asked) == [number * 10 for number in range(6)]
        assert await first == 0

    assert run(scenario) == [("first", [0]), ("a", [0, 2]), ("b", [1, 3]), ("a", [4]), ("b", [5])]


def test_a_group_that_fails_fails_alone():
    async def scenario(batcher, recorder):
        await wait_behind(batcher, recorder)
        asked = [asyncio.ensure_future(batcher.ask(key, 1)) for key in ("bad", "good", "bad")]
        await asyncio.sleep(0)
        recorder.gate.set()
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [ZeroDivisionError, int, ZeroDivisionError]
        assert await batcher.ask("good", 3) == 30  # and the thread goes on

    run(scenario)


def test_a_full_queue_refuses_and_takes_again_when_there_is_room():
    async def scenario(batcher, recorder):
        await wait_behind(batcher, recorder)
        asked = [asyncio.ensure_future(batcher.ask("a", number)) for number in range(2)]
        await asyncio.sleep(0)
        assert len(batcher) == 2
        with pytest.raises(Full):
            await batcher.ask("a", 2)
        recorder.gate.set()
        await asyncio.gather(*asked)
        assert await batcher.ask("a", 2) == 20

    run(scenario, queue_size=2)


def test_nothing_is_computed_for_those_who_gave_up():
    async def scenario(batcher, recorder):
        first = await wait_behind(batcher, recorder)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(batcher.ask("a", 1), 0.01)
        kept = asyncio.ensure_future(batcher.ask("a", 2))
        await asyncio.sleep(0)
        recorder.gate.set()
        assert await kept == 20
        assert await first == 0

    assert run(scenario) == [("first", [0]), ("a", [2])]


def test_closing_answers_those_under_way_and_refuses_the_rest():
    async def scenario(batcher, recorder):
        first = await wait_behind(batcher, recorder)
        waiting = asyncio.ensure_future(batcher.ask("a", 1))
        await asyncio.sleep(0)
        batcher.close()
        recorder.gate.set()
        assert await first == 0
        for late in (waiting, batcher.ask("a", 2)):
            with pytest.raises(Closed):
                await late

    run(scenario)


def test_sizes_are_told():
    sizes = []

    async def scenario(batcher, recorder):
        await wait_behind(batcher, recorder)
        asked = [asyncio.ensure_future(batcher.ask("a", number)) for number in range(7)]
        await asyncio.sleep(0)
        recorder.gate.set()
        await asyncio.gather(*asked)

    run(scenario, on_batch=sizes.append)
    assert sizes == [1, 4, 3]
