"""Python's cycle collector is off during a load, and only then."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.follower.said import Topic, elected, identity, partition
from tierstate.follower.replay import catch_up
from tierstate.follower.rocksdb_view import RocksView
from tierstate.follower.uncollected import uncollected
from tierstate.schemas.codec import decode_fact
from tierstate.state.facts import Fact, UnknownFact


@pytest.fixture(autouse=True)
def _collecting() -> Iterator[None]:
    assert gc.isenabled()
    yield
    gc.enable()


def test_facts_of_a_partition_are_decoded_without_it_and_then_it_works_again(said: Topic, tmp_path: Path) -> None:
    enabled: list[bool] = []

    def decode(key: str, value: bytes) -> Fact | UnknownFact:
        enabled.append(gc.isenabled())
        return decode_fact(key, value)

    said.say(elected(0, 1, 1))
    view = RocksView(tmp_path / "view", identity(), decode)
    catch_up(said.topic, view, {number: said.topic.end(number) for number in range(4)})
    assert view.state(partition(0)).fact_count == 1
    assert (enabled, gc.isenabled()) == ([False], True)
    view.close()


def test_loads_overlap_and_the_last_one_to_end_brings_it_back() -> None:
    entered, leave = threading.Event(), threading.Event()

    def load() -> None:
        with uncollected():
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=load)
    with uncollected():
        thread.start()
        entered.wait(10)
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()


def test_it_comes_back_after_an_error_and_stays_away_where_it_was_switched_off() -> None:
    with pytest.raises(RuntimeError), uncollected():
        raise RuntimeError
    assert gc.isenabled()
    gc.disable()
    with uncollected():
        pass
    assert not gc.isenabled()
