"""The contract of every view store: RocksDB in production, and the store in memory that serves as its oracle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.follower.said import PARTITIONS, Topic, elected, identity, log_start, partition
from tierstate.follower.digests import live_set_digest
from tierstate.follower.replay import catch_up
from tierstate.follower.rocksdb_view import RocksView
from tierstate.schemas.codec import decode_fact
from tierstate.state.errors import CorruptData, InvalidRequest, Unavailable
from tierstate.state.offsets import Position
from tierstate.state.view import ViewStore

NewStore = Callable[[], ViewStore]


def replay(said: Topic, store: ViewStore) -> ViewStore:
    catch_up(said.topic, store, {number: said.topic.end(number) for number in range(PARTITIONS)})
    return store


def speak(said: Topic) -> None:
    """Write facts of two partitions: two elections, log starts accepted and fenced, one erased."""
    first = elected(0, 1, 11)
    at = said.say(first)
    said.say(log_start(0, 100, first, at))
    said.say(elected(0, 2, 12, (1, 0)))
    said.say(log_start(0, 900, first, at, counter=2))
    other = elected(1, 5, 13)
    at = said.say(other)
    said.say(log_start(1, 7, other, at))
    said.erase(log_start(1, 7, other, at))


def test_a_partition_means_what_its_facts_mean(said: Topic, new_store: NewStore) -> None:
    speak(said)
    store = replay(said, new_store())
    view = store.state(partition(0)).view()
    assert (view.log_start, view.topic, view.term and view.term.epoch) == (100, "orders", 2)
    assert len(view.fenced) == 1
    assert store.state(partition(1)).view().log_start is None
    assert store.partitions() == [partition(0), partition(1)]


def test_a_partition_without_facts_has_an_empty_view(new_store: NewStore) -> None:
    view = new_store().state(partition(9)).view()
    assert (view.term, view.readable, view.log_start) == (None, (), None)


def test_a_view_asked_before_and_one_asked_after_the_facts_are_the_same(said: Topic, new_store: NewStore) -> None:
    early, late = new_store(), new_store()
    assert early.state(partition(0)).view().leader is None
    speak(said)
    replay(said, early), replay(said, late)
    assert early.state(partition(0)).facts() == late.state(partition(0)).facts()


def test_positions_go_with_the_facts(said: Topic, new_store: NewStore) -> None:
    speak(said)
    store = replay(said, new_store())
    assert [store.position(number) for number in range(PARTITIONS)] == [
        said.topic.end(number) for number in range(PARTITIONS)
    ]


def test_two_replays_have_one_digest_and_a_withheld_fact_changes_it(said: Topic, new_store: NewStore) -> None:
    speak(said)
    one, two, short = replay(said, new_store()), replay(said, new_store()), new_store()
    withheld = next(entry.key for _, entry in one.entries())
    catch_up(said.topic, short, {n: said.topic.end(n) for n in range(PARTITIONS)}, without=withheld)
    digests = [live_set_digest(store.entries()).hexdigest() for store in (one, two, short)]
    assert digests[0] == digests[1] != digests[2]


def test_a_fact_applied_twice_stands_once(said: Topic, new_store: NewStore) -> None:
    speak(said)
    store = replay(said, new_store())
    before = live_set_digest(store.entries()).hexdigest()
    for number, entry in list(store.entries()):
        store.apply(number, [entry], store.position(number))
    assert live_set_digest(store.entries()).hexdigest() == before


def test_a_rocksdb_view_resumes_exactly_where_it_was_closed(said: Topic, tmp_path: Path) -> None:
    speak(said)
    view = RocksView(tmp_path / "view", identity(), decode_fact)
    replay(said, view)
    before = (live_set_digest(view.entries()).hexdigest(), [view.position(n) for n in range(PARTITIONS)])
    view.close()
    again = RocksView(tmp_path / "view", identity(), decode_fact)
    assert (live_set_digest(again.entries()).hexdigest(), [again.position(n) for n in range(PARTITIONS)]) == before
    assert again.state(partition(0)).view().log_start == 100
    again.close()


def test_the_view_of_another_topic_is_refused(tmp_path: Path) -> None:
    RocksView(tmp_path / "view", identity(), decode_fact).close()
    with pytest.raises(InvalidRequest, match="another tier-state topic"):
        RocksView(tmp_path / "view", identity("AAAAAAAAAAAAAAAAAAAAAw"), decode_fact)
    RocksView(tmp_path / "view", identity(), decode_fact).close()


def test_a_view_that_is_open_elsewhere_is_refused(tmp_path: Path) -> None:
    view = RocksView(tmp_path / "view", identity(), decode_fact)
    with pytest.raises(Unavailable, match="open"):
        RocksView(tmp_path / "view", identity(), decode_fact)
    view.close()


def test_a_folder_that_is_no_view_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "view" / "rocksdb"
    folder.mkdir(parents=True)
    (folder / "CURRENT").write_text("nonsense\n")
    with pytest.raises(CorruptData, match="not a view"):
        RocksView(tmp_path / "view", identity(), decode_fact)


def test_the_position_counts_tombstones_too(said: Topic, new_store: NewStore) -> None:
    leader = elected(2, 1, 5)
    said.say(leader), said.erase(leader)
    store = replay(said, new_store())
    assert store.position(said.number(f"{partition(2).topic_id}/2/")) == Position(2)
    assert store.partitions() == []
