"""Pools refuse what is too much, and never an answer that has begun."""

from __future__ import annotations

import asyncio
import threading
import weakref

import pytest

from tierstate.runtime.pool import WAITING_PER_THREAD, Pool
from tierstate.state.errors import Throttled, Unavailable


def test_an_answer_that_has_begun_goes_on_in_a_full_pool() -> None:
    async def scenario() -> None:
        pool, gate = Pool("full", 1), threading.Event()
        waiting = [asyncio.ensure_future(pool.run(gate.wait)) for _ in range(1 + WAITING_PER_THREAD)]
        await asyncio.sleep(0)
        with pytest.raises(Throttled):
            await pool.run(lambda: None)
        going_on = asyncio.ensure_future(pool.run(lambda: "next chunk", goes_on=True))
        await asyncio.sleep(0)
        gate.set()
        assert await going_on == "next chunk"
        await asyncio.gather(*waiting)
        pool.close()

    asyncio.run(scenario())


def test_a_cancelled_call_gives_its_place_back_and_never_runs() -> None:
    async def scenario() -> None:
        pool, gate, ran = Pool("cancelled", 1), threading.Event(), threading.Event()
        first = asyncio.ensure_future(pool.run(gate.wait))
        second = asyncio.ensure_future(pool.run(ran.set))
        await asyncio.sleep(0)
        assert pool.admitted == 2
        second.cancel()
        await asyncio.sleep(0)
        assert pool.admitted == 1
        gate.set()
        await first
        pool.close()
        assert not ran.is_set()

    asyncio.run(scenario())


def test_the_result_of_a_cancelled_call_is_dropped_though_its_task_is_kept() -> None:
    class Brought: ...

    async def scenario() -> None:
        pool, began, gate = Pool("cancelled", 1), threading.Event(), threading.Event()
        brought: list[weakref.ref[Brought]] = []

        def bring() -> Brought:
            began.set()
            gate.wait()
            result = Brought()
            brought.append(weakref.ref(result))
            return result

        task = asyncio.ensure_future(pool.run(bring))
        await asyncio.to_thread(began.wait)
        task.cancel()
        await asyncio.wait([task])
        gate.set()
        pool.close()
        await asyncio.sleep(0)
        assert task.cancelled()
        assert brought[0]() is None

    asyncio.run(scenario())


def test_a_closed_pool_says_that_the_gateway_is_stopping() -> None:
    pool = Pool("closed", 1)
    pool.close()
    with pytest.raises(Unavailable, match="stopping"):
        asyncio.run(pool.run(lambda: None))
    assert pool.admitted == 0
