"""Agents keep the newest backup of the cluster current: on change, each hour, once, and whatever cannot be read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from threading import Event
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.commits import commit
from tests.operations import run_until
from tests.topics import create
from tests.twins.manual_clock import ManualClock
from tierstate.app.operating.backup_chore import BackupChore
from tierstate.app.operating.cluster_backup import backup_key, backup_times, newest_backup, put_backup
from tierstate.broker.open import Broker, open_broker
from tierstate.runtime.operation import run
from tierstate.runtime.settings_load import settings_from
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.errors import StorageUnavailable
from tierstate.state.offsets import TimestampMs
from tierstate.storage.memory import MemoryStore

DAY_MS = 86_400_000
CONTENT: dict[str, Any] = {"cluster_id": "c", "topics": {}, "groups": {}, "problems": []}


@pytest.fixture
def broker(kafka: KafkaSandbox) -> Iterator[Broker]:
    with open_broker(kafka.client_config) as opened:
        yield opened


def chore(broker: Broker, store: MemoryStore, clock: ManualClock) -> BackupChore:
    return BackupChore(broker.raw, store, settings_from({"backup.every": "1h"}), clock, clock.now_ms)


def advance(chore: BackupChore, number: int = 0) -> None:
    run(chore.operation(number, Event()))


def made(kafka: KafkaSandbox, topic: str) -> None:
    create(AdminClient({**kafka.client_config, "log_level": 0}), NewTopic(topic, 1, 1))


@pytest.mark.kafka
def test_a_new_topic_is_backed_up_at_the_next_look_and_offsets_within_the_hour(
    kafka: KafkaSandbox, broker: Broker, topic_name: str
) -> None:
    store, clock = MemoryStore(), ManualClock(TimestampMs(1_800_000_000_000))
    backs_up = chore(broker, store, clock)
    made(kafka, topic_name)
    seen = []
    changes: tuple[Callable[[], object], ...] = (
        lambda: None,
        lambda: None,
        lambda: made(kafka, f"{topic_name}-2"),
        lambda: commit(kafka.client_config, topic_name, topic_name, 0, 5),
        lambda: clock.advance(3600),
        lambda: clock.advance(3600),
    )
    for change in changes:
        change()
        clock.advance(1)
        advance(backs_up)
        seen.append(len(backup_times(store, kafka.cluster_id)))
    assert seen == [1, 1, 2, 2, 3, 3]
    newest = newest_backup(store, kafka.cluster_id)
    assert newest is not None
    assert newest.groups[topic_name][topic_name][0] == 5
    assert backs_up.problems == ()


@pytest.mark.kafka
def test_one_agent_backs_up_and_a_killed_or_second_one_leaves_whole_backups(
    kafka: KafkaSandbox, broker: Broker
) -> None:
    store, clock = MemoryStore(), ManualClock(TimestampMs(1_800_000_000_000))
    other = chore(broker, store, clock)
    advance(other, 1)
    assert backup_times(store, kafka.cluster_id) == []
    assert other.problems is None, "the agent of another tier-state partition is not responsible"
    first = chore(broker, store, clock)
    run_until(first.operation(0, Event()), 0)
    assert backup_times(store, kafka.cluster_id) == []
    at_once = [each.operation(0, Event()) for each in (first, other)]
    assert [next(each) for each in at_once] == ["put a backup"] * 2
    for operation in at_once:
        run(operation)
    assert len(backup_times(store, kafka.cluster_id)) == 1, "of the same moment, one is enough"
    clock.advance(3600)
    for each in (first, other):
        advance(each)
    assert len(backup_times(store, kafka.cluster_id)) == 1, "nothing has changed"


@pytest.mark.kafka
def test_a_store_that_is_away_is_a_problem_until_it_is_back(kafka: KafkaSandbox, broker: Broker) -> None:
    away = True

    def faults(operation: str, key: str, writes: int) -> None:
        if away:
            raise StorageUnavailable("the store is away")

    store = MemoryStore(faults=faults)
    backs_up = chore(broker, store, ManualClock(TimestampMs(1_800_000_000_000)))
    with pytest.raises(StorageUnavailable):
        advance(backs_up)
    (problem,) = backs_up.problems or ()
    assert problem == "no backup is made, none was seen: the store is away"
    away = False
    advance(backs_up)
    assert backs_up.problems == ()


def test_a_clock_that_is_behind_makes_no_backup_that_is_never_the_newest() -> None:
    store = MemoryStore()
    put_backup(store, CONTENT, TimestampMs(2_000), None)
    first = newest_backup(store, "c")
    put_backup(store, {**CONTENT, "problems": ["changed"]}, TimestampMs(1_000), first)
    second = newest_backup(store, "c")
    assert first is not None
    assert second is not None
    assert (second.at, second.problems) == (2_001, ("changed",))


@pytest.mark.kafka
def test_backups_that_no_moment_within_the_archive_needs_are_deleted(kafka: KafkaSandbox, broker: Broker) -> None:
    store, now = MemoryStore(), TimestampMs(1_800_000_000_000)
    days = (500, 450, 401, 399)
    for age in days:
        content = {**CONTENT, "cluster_id": kafka.cluster_id, "problems": [str(age)]}
        store.put_if_absent(backup_key(kafka.cluster_id, TimestampMs(now - age * DAY_MS)), json.dumps(content).encode())
    advance(chore(broker, store, ManualClock(now)))
    ages = [(now - at) // DAY_MS for at in backup_times(store, kafka.cluster_id)]
    assert ages == [401, 399, 0], "400 days ago, that of 401 days was the newest"
