import asyncio
import threading

import pytest

from rankformer.serving.workers import Closed, Full, Workers


def test_calls_beyond_those_that_run_and_wait_are_refused_until_one_ends():
    async def scenario():
        workers, gate = Workers(1, 1, "test"), threading.Event()
        running = [asyncio.ensure_future(workers.run(gate.wait)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Full):
            await workers.run(int)
        gate.set()
        await asyncio.gather(*running)
        assert await workers.run(int, "7") == 7
        workers.close()

    asyncio.run(scenario())


def test_a_place_stays_taken_while_its_thread_works_for_nobody():
    async def scenario():
        workers, gate, ended = Workers(1, 0, "test"), threading.Event(), threading.Event()

        def work():
            gate.wait()
            ended.set()

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(workers.run(work), 0.01)
        with pytest.raises(Full):
            await workers.run(int)
        gate.set()
        while not ended.is_set():
            await asyncio.sleep(0.001)
        while True:  # the thread gives its place back right after
            try:
                assert await workers.run(int) == 0
                break
            except Full:
                await asyncio.sleep(0.001)
        workers.close()

    asyncio.run(scenario())


def test_an_error_reaches_the_one_who_asked_and_frees_the_place():
    async def scenario():
        workers = Workers(1, 0, "test")
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                await workers.run(divmod, 1, 0)
        workers.close()
        with pytest.raises(Closed):
            await workers.run(int)

    asyncio.run(scenario())
