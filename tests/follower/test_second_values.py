"""A key that its writer wrote once, and that now has another value: an integrity alarm that is never lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.follower.said import PARTITIONS, Topic, elected, identity, partition
from tests.twins.manual_clock import ManualClock
from tierstate.follower.following import Following
from tierstate.follower.open import open_view
from tierstate.follower.rocksdb_view import RocksView
from tierstate.runtime.listener import Event, SecondValueSeen
from tierstate.runtime.metrics import Metrics
from tierstate.schemas.codec import decode_fact
from tierstate.state.keys import key_of, tier_partition_of
from tierstate.state.offsets import Position
from tierstate.state.view import Entry, SecondValue, ViewStore

NewStore = Callable[[], ViewStore]
KEY = key_of(elected(0, 3, 1))
NUMBER = tier_partition_of(partition(0), PARTITIONS)


def land(store: ViewStore, position: int, value: bytes | None, key: str = KEY) -> list[SecondValue]:
    return store.apply(NUMBER, [Entry(key, Position(position), value)], Position(position + 1))


def test_another_value_under_a_live_key_is_an_alarm_with_both_of_them(new_store: NewStore) -> None:
    store = new_store()
    assert land(store, 0, b"one") == []
    alarm = SecondValue(KEY, Position(0), Position(1), b"one", b"two")
    assert land(store, 1, b"two") == [alarm]
    assert store.second_values(partition(0)) == [alarm]
    assert store.second_values(partition(1)) == []


def test_both_in_one_batch_are_an_alarm_too(new_store: NewStore) -> None:
    store = new_store()
    entries = [Entry(KEY, Position(0), b"one"), Entry(KEY, Position(1), b"two")]
    assert [alarm.second for alarm in store.apply(NUMBER, entries, Position(2))] == [b"two"]


def test_the_same_value_again_is_a_duplicate_landing_whose_last_position_counts(new_store: NewStore) -> None:
    store = new_store()
    land(store, 0, b"one")
    assert land(store, 7, b"one") == []
    assert [(entry.position, entry.value) for _, entry in store.entries()] == [(7, b"one")]
    assert store.second_values(partition(0)) == []


@pytest.mark.parametrize("together", [False, True])
def test_a_value_after_its_key_was_erased_is_no_alarm(new_store: NewStore, together: bool) -> None:
    store = new_store()
    entries = [Entry(KEY, Position(at), value) for at, value in enumerate((b"one", None, b"two"))]
    for batch in [entries] if together else [[entry] for entry in entries]:
        assert store.apply(NUMBER, batch, Position(9)) == []
    assert store.second_values(partition(0)) == []


def test_an_alarm_outlives_the_key_and_a_third_value_until_it_is_forgotten(new_store: NewStore) -> None:
    store = new_store()
    land(store, 0, b"one"), land(store, 1, b"two")
    assert land(store, 2, b"three") == []
    land(store, 3, None)
    assert [alarm.second for alarm in store.second_values(partition(0))] == [b"two"]
    store.forget_second_value(partition(0), KEY)
    assert store.second_values(partition(0)) == []
    land(store, 4, b"four")
    assert [alarm.second for alarm in land(store, 5, b"five")] == [b"five"]


def test_a_foreign_key_may_change_as_it_likes(new_store: NewStore) -> None:
    store = new_store()
    land(store, 0, b"one", "foreign")
    assert land(store, 1, b"two", "foreign") == []


def test_an_alarm_survives_a_restart(tmp_path: Path) -> None:
    view = RocksView(tmp_path / "view", identity(), decode_fact)
    land(view, 0, b"one"), land(view, 1, b"two" * 1000)
    before = view.second_values(partition(0))
    view.close()
    again = RocksView(tmp_path / "view", identity(), decode_fact, create=False)
    assert again.second_values(partition(0)) == before != []
    again.forget_second_value(partition(0), KEY)
    again.close()
    last = RocksView(tmp_path / "view", identity(), decode_fact, create=False)
    assert last.second_values(partition(0)) == []
    last.close()


def test_a_follower_reports_a_second_value_shows_it_and_forgets_it_on_demand(said: Topic) -> None:
    events: list[Event] = []
    metrics = Metrics()

    def listen(event: Event) -> None:
        events.append(event)
        metrics.listen(event)

    follower = open_view(said.topic, "cluster", ManualClock(), Following(tail=False, listener=listen))
    said.topic.append(NUMBER, KEY, b"one"), said.topic.append(NUMBER, KEY, b"two")
    follower.require_fresh(NUMBER, 0)
    assert SecondValueSeen(NUMBER, KEY, 0, 1) in events
    assert b"tierstate_second_values_total 1.0" in metrics.exposition()
    assert [alarm.key for alarm in follower.second_values(partition(0))] == [KEY]
    follower.forget_second_value(partition(0), KEY)
    assert follower.second_values(partition(0)) == []
    follower.close()
