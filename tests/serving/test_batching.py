import asyncio
import threading
from functools import partial

import pytest

from rankformer.serving.batching import BatchQueue


class Rejected(Exception):
    pass


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
        queue = BatchQueue(recorder, threads=1, rejected=Rejected, **sizes)
        try:
            await scenario(queue, recorder)
        finally:
            recorder.gate.set()
            queue.close()

    asyncio.run(main())
    return recorder.calls


async def wait_behind(queue, recorder):
    """Hold the thread with one call; return its task."""
    recorder.gate.clear()
    first = asyncio.ensure_future(queue.submit("first", 0))
    while len(queue) or not queue._working:
        await asyncio.sleep(0)
    return first


def test_a_lone_call_is_answered_at_once_and_alone():
    async def scenario(queue, recorder):
        assert await queue.submit("a", 7) == 70
        assert await queue.submit("a", 8) == 80

    assert run(scenario) == [("a", [7]), ("a", [8])]


def test_what_waits_is_answered_together_in_groups_and_in_turn():
    async def scenario(queue, recorder):
        first = await wait_behind(queue, recorder)
        asked = [asyncio.ensure_future(queue.submit("ab"[number % 2], number)) for number in range(6)]
        await asyncio.sleep(0)
        recorder.gate.set()
        assert await asyncio.gather(*asked) == [number * 10 for number in range(6)]
        assert await first == 0

    assert run(scenario) == [("first", [0]), ("a", [0, 2]), ("b", [1, 3]), ("a", [4]), ("b", [5])]


def test_a_group_that_fails_fails_alone():
    async def scenario(queue, recorder):
        await wait_behind(queue, recorder)
        asked = [asyncio.ensure_future(queue.submit(key, 1)) for key in ("bad", "good", "bad")]
        await asyncio.sleep(0)
        recorder.gate.set()
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [ZeroDivisionError, int, ZeroDivisionError]
        assert await queue.submit("good", 3) == 30  # and the thread continues

    run(scenario)


def test_a_full_queue_refuses_and_takes_again_when_there_is_room():
    async def scenario(queue, recorder):
        await wait_behind(queue, recorder)
        asked = [asyncio.ensure_future(queue.submit("a", number)) for number in range(2)]
        await asyncio.sleep(0)
        assert len(queue) == 2
        with pytest.raises(Rejected, match="too_many_requests"):
            await queue.submit("a", 2)
        recorder.gate.set()
        await asyncio.gather(*asked)
        assert await queue.submit("a", 2) == 20

    run(scenario, queue_size=2)


def test_nothing_is_computed_for_those_who_gave_up():
    async def scenario(queue, recorder):
        first = await wait_behind(queue, recorder)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(queue.submit("a", 1), 0.01)
        kept = asyncio.ensure_future(queue.submit("a", 2))
        await asyncio.sleep(0)
        recorder.gate.set()
        assert await kept == 20
        assert await first == 0

    assert run(scenario) == [("first", [0]), ("a", [2])]


def test_closing_answers_those_under_way_and_refuses_the_rest():
    async def scenario(queue, recorder):
        first = await wait_behind(queue, recorder)
        waiting = asyncio.ensure_future(queue.submit("a", 1))
        await asyncio.sleep(0)
        queue.close()
        recorder.gate.set()
        assert await first == 0
        for late in (waiting, queue.submit("a", 2)):
            with pytest.raises(Rejected, match="stopping"):
                await late

    run(scenario)


def test_sizes_are_reported():
    sizes = []

    async def scenario(queue, recorder):
        await wait_behind(queue, recorder)
        asked = [asyncio.ensure_future(queue.submit("a", number)) for number in range(7)]
        await asyncio.sleep(0)
        recorder.gate.set()
        await asyncio.gather(*asked)

    run(scenario, on_batch=sizes.append)
    assert sizes == [1, 4, 3]


def calls(threads, waiting):
    """A queue whose keys are calls, and a function that runs one."""
    queue = BatchQueue(lambda call, _: [call()], threads=threads, batch_size=1, queue_size=waiting, rejected=Rejected)
    return queue, lambda *call: queue.submit(partial(*call))


def test_calls_beyond_those_that_run_and_wait_are_refused_until_one_ends():
    async def scenario():
        (pool, run), gate = calls(1, 1), threading.Event()
        running = [asyncio.ensure_future(run(gate.wait)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Rejected, match="too_many_requests"):
            await run(int)
        gate.set()
        await asyncio.gather(*running)
        assert await run(int, "7") == 7
        pool.close()

    asyncio.run(scenario())


def test_a_place_stays_taken_while_its_thread_works_for_nobody():
    async def scenario():
        (pool, run), gate, ended = calls(1, 0), threading.Event(), threading.Event()

        def work():
            gate.wait()
            ended.set()

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run(work), 0.01)
        with pytest.raises(Rejected, match="too_many_requests"):
            await run(int)
        gate.set()
        while not ended.is_set():
            await asyncio.sleep(0.001)
        while True:  # the thread gives its place back right after
            try:
                assert await run(int) == 0
                break
            except Rejected:
                await asyncio.sleep(0.001)
        pool.close()

    asyncio.run(scenario())


def test_one_that_fails_does_not_fail_those_it_was_answered_with():
    def answer(key, subjects):
        if 3 in subjects:
            raise ZeroDivisionError
        return [subject * 10 for subject in subjects]

    async def main():
        sizes = {"threads": 1, "batch_size": 8, "queue_size": 100}
        queue = BatchQueue(answer, rejected=Rejected, retry_alone=True, **sizes)
        found = await asyncio.gather(*(queue.submit("a", number) for number in range(6)), return_exceptions=True)
        queue.close()
        return found

    found = asyncio.run(main())
    assert [found[number] for number in (0, 1, 2, 4, 5)] == [0, 10, 20, 40, 50]
    assert isinstance(found[3], ZeroDivisionError)


def test_an_error_reaches_the_one_who_asked_and_frees_the_place():
    async def scenario():
        pool, run = calls(1, 0)
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                await run(divmod, 1, 0)
        pool.close()
        with pytest.raises(Rejected, match="stopping"):
            await run(int)

    asyncio.run(scenario())


def test_several_threads_answer_beside_each_other():
    async def scenario():
        (pool, run), meeting = calls(3, 0), threading.Barrier(3, timeout=30)
        assert sorted(await asyncio.gather(*(run(meeting.wait) for _ in range(3)))) == [0, 1, 2]
        pool.close()

    asyncio.run(scenario())
