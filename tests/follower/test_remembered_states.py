"""Decoded partitions are a bounded cache: a forgotten one is read again, and no caller sees a difference."""

from __future__ import annotations

from pathlib import Path

from tests.follower.said import Topic, elected, identity, log_start, partition
from tierstate.follower.replay import catch_up
from tierstate.follower.rocksdb_view import RocksView
from tierstate.schemas.codec import decode_fact
from tierstate.state.facts import Fact, UnknownFact
from tierstate.state.view import MemoryView


def test_no_more_facts_stay_decoded_than_are_allowed_and_each_partition_can_still_be_asked(
    said: Topic, tmp_path: Path
) -> None:
    decoded = 0

    def decode(key: str, value: bytes) -> Fact | UnknownFact:
        nonlocal decoded
        decoded += 1
        return decode_fact(key, value)

    for user in range(5):
        leader = elected(user, 1, user + 1)
        at = said.say(leader)
        for counter in range(9):
            said.say(log_start(user, counter, leader, at, counter))
    view = RocksView(tmp_path / "view", identity(), decode, remembered_facts=20)
    catch_up(said.topic, view, {number: said.topic.end(number) for number in range(4)})
    assert decoded == 0
    for _ in range(2):
        for user in range(5):
            assert view.state(partition(user)).view().log_start == 8
    assert decoded == 100  # two of five fit, and they are asked in turns
    view.state(partition(4)), view.state(partition(3))
    assert decoded == 100
    view.close()


def test_a_partition_that_is_larger_than_the_limit_is_remembered_alone_and_kept_up(said: Topic, tmp_path: Path) -> None:
    leader = elected(0, 1, 1)
    at = said.say(leader)
    view = RocksView(tmp_path / "view", identity(), decode_fact, remembered_facts=3)
    number = said.number(f"{partition(0).topic_id}/0/")
    for counter in range(9):
        said.say(log_start(0, counter, leader, at, counter))
        catch_up(said.topic, view, {number: said.topic.end(number)})
        assert view.state(partition(0)).view().log_start == counter
    state = view.state(partition(0))
    assert state.fact_count == 10
    assert view.state(partition(0)) is state
    assert view.state(partition(1)).fact_count == 0
    assert view.state(partition(0)) is not state
    view.close()


def test_listing_partitions_copies_no_facts() -> None:
    view = MemoryView(decode_fact)
    view.state(partition(0))
    assert view.partitions() == []
