"""Questions to the broker, how often they are asked, and the disk while the broker works on it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from tests.leader.world import Process, World
from tierstate.leader.copier import copy_segment
from tierstate.leader.gauges import feed_gauges
from tierstate.leader.observe import AHEAD_AGE_S, CONFIG_AGE_S, GROUPS_AGE_S, PROBLEM_AGE_S, GroupPolicy, Observer
from tierstate.runtime.metrics import Metrics
from tierstate.runtime.operation import run
from tierstate.state.errors import AccessDenied, Fenced, StorageFull, Unavailable, UnknownTopic
from tierstate.state.ids import TopicIdPartition
from tierstate.state.offsets import Offset


class Counted:
    """A cluster that counts the questions that it gets, and may refuse some of them."""

    def __init__(self, world: World) -> None:
        self._broker = world.broker
        self.asked: Counter[str] = Counter()
        self.refuses: set[str] = set()
        self.listing: Callable[[], None] = lambda: None
        self.listing_ahead: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Any:
        def ask(*given: Any, **named: Any) -> Any:
            self.asked[name] += 1
            {"groups": self.listing, "groups_of": self.listing_ahead}.get(name, lambda: None)()
            if name in self.refuses:
                raise AccessDenied("no permission")
            return getattr(self._broker, name)(*given, **named)

        return ask

    @property
    def control(self) -> Any:
        """Return this object in place of the broker's control."""
        return self


def observer(world: World, broker: Any, *, respect: bool = True) -> Observer:
    policy = GroupPolicy(respect, (), 60.0)
    return Observer(replace(world.process().context, broker=broker), policy, lambda name, config: config)


def test_bounds_are_asked_every_time_configuration_and_groups_rarely(world: World) -> None:
    broker = Counted(world)
    observe = observer(world, broker)
    for _ in range(10):
        observe(world.partition, world.name)
    assert broker.asked == {"bounds": 10, "config": 1, "groups": 1}
    world.clock.advance(CONFIG_AGE_S)
    observe(world.partition, world.name)
    assert broker.asked == {"bounds": 11, "config": 2, "groups": 1}
    world.clock.advance(GROUPS_AGE_S)
    observe(world.partition, world.name)
    assert broker.asked == {"bounds": 12, "config": 3, "groups": 2}


def test_groups_that_could_not_all_be_listed_are_asked_for_again_soon(world: World) -> None:
    """A coordinator that loads its groups has them in seconds: the hidden ones must not stay unknown for minutes."""
    broker = Counted(world)
    observe = observer(world, broker)
    world.broker.hide_groups("COORDINATOR_LOAD_IN_PROGRESS")
    assert observe(world.partition, world.name).groups.unknown == "COORDINATOR_LOAD_IN_PROGRESS"
    world.broker.hide_groups(None)
    world.clock.advance(PROBLEM_AGE_S)
    observe.ahead({}, {world.name})
    assert observe(world.partition, world.name).groups.unknown is None
    world.clock.advance(PROBLEM_AGE_S)
    observe(world.partition, world.name)
    assert broker.asked["groups"] == 2


def test_an_answer_ahead_is_good_for_one_look_and_not_for_long(world: World) -> None:
    broker = Counted(world)
    observe = observer(world, broker)
    due = {world.partition: world.name, TopicIdPartition(world.topic_id, 1): world.name}
    assert observe.ahead(due, {world.name}) == set()
    assert broker.asked == {"bounds_of": 1, "configs": 1, "groups_of": 1}
    observe(world.partition, world.name)
    assert broker.asked["bounds"] == broker.asked["config"] == broker.asked["groups"] == 0
    observe(world.partition, world.name)
    assert broker.asked["bounds"] == 1
    observe.ahead(due, {world.name})
    world.clock.advance(AHEAD_AGE_S)
    observe(world.partition, world.name)
    assert broker.asked == {"bounds_of": 2, "configs": 1, "groups_of": 1, "bounds": 2}


def test_an_error_ahead_fails_only_the_look_of_its_partition(world: World) -> None:
    observe = observer(world, world.broker)
    gone = TopicIdPartition(world.topic_id, 7)
    observe.ahead({world.partition: world.name, gone: world.name}, {world.name})
    with pytest.raises(UnknownTopic):
        observe(gone, world.name)
    assert observe(world.partition, world.name).bounds == world.broker.bounds(world.name, 0)


def test_nothing_is_asked_ahead_of_no_look_but_configuration_every_half_minute(world: World) -> None:
    broker = Counted(world)
    observe = observer(world, broker)
    observe.ahead({}, {world.name})
    for _ in range(40):
        world.clock.advance(0.25)
        observe.ahead({}, {world.name})
    assert broker.asked == {"configs": 1}
    world.clock.advance(CONFIG_AGE_S)
    observe.ahead({}, {world.name})
    assert broker.asked == {"configs": 2}


def test_a_changed_configuration_is_reported_once(world: World) -> None:
    observe = observer(world, world.broker)
    assert observe.ahead({}, {world.name}) == set()
    world.broker.configure(world.name, {"retention.ms": "1000"})
    world.clock.advance(CONFIG_AGE_S)
    assert observe.ahead({}, {world.name}) == {world.name}
    assert observe(world.partition, world.name).config.retention_ms == 1000
    world.clock.advance(CONFIG_AGE_S)
    assert observe.ahead({}, {world.name}) == set()


def test_a_cluster_that_answers_nothing_ahead_fails_looks_and_nothing_else(world: World) -> None:
    broker = Counted(world)
    broker.refuses = {"bounds_of", "configs", "groups_of"}
    observe = observer(world, broker)
    due = {world.partition: world.name, TopicIdPartition(world.topic_id, 1): world.name}
    assert observe.ahead(due, {world.name}) == set()
    with pytest.raises(AccessDenied):
        observe(world.partition, world.name)
    assert observe(world.partition, world.name).groups.holds == {}


def test_a_partition_that_waits_for_a_transaction_is_notified(world: World) -> None:
    calls = []
    policy = GroupPolicy(False, (), 60.0)
    context = world.process().context
    observe = Observer(context, policy, lambda name, config: config, list, lambda *it: calls.append(it))
    observe(world.partition, world.name)
    world.broker.open_transaction(world.name, 0, Offset(world.bases[1]))
    observe(world.partition, world.name)
    assert calls == [(world.partition, False), (world.partition, True)]


def test_threads_that_want_the_same_at_once_ask_once_and_all_get_it(world: World) -> None:
    another, questions = threading.Barrier(2), []

    def problems() -> list[str]:
        questions.append(1)
        with suppress(threading.BrokenBarrierError):  # long enough for others to come, were they let in
            another.wait(0.5)
        return ["retention.ms is 1"]

    policy, seen = GroupPolicy(False, (), 60.0), []
    observe = Observer(world.process().context, policy, lambda name, config: config, problems)

    def look() -> None:
        seen.append(observe(world.partition, world.name).drift)

    threads = [threading.Thread(target=look) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    assert (len(questions), seen) == (1, ["retention.ms is 1"] * 4)


def test_answers_ahead_of_an_earlier_turn_still_wait_for_their_looks(world: World) -> None:
    broker = Counted(world)
    observe = observer(world, broker)
    mine, other = world.partition, TopicIdPartition(world.topic_id, 1)
    third = TopicIdPartition(world.topic_id, 2)
    observe.ahead({mine: world.name, other: world.name}, {world.name})
    world.clock.advance(AHEAD_AGE_S / 2)
    observe.ahead({other: world.name, third: world.name}, {world.name})
    observe(mine, world.name)
    assert broker.asked["bounds"] == 0


def test_groups_are_not_listed_where_they_do_not_count(world: World, new_world: Callable[..., World]) -> None:
    broker = Counted(world)
    assert observer(world, broker, respect=False)(world.partition, world.name).groups.holds == {}
    compacted = new_world("none", {"cleanup.policy": "compact"})
    counter = Counted(compacted)
    observer(compacted, counter)(compacted.partition, compacted.name)
    assert broker.asked["groups"] == counter.asked["groups"] == 0


def test_groups_that_may_not_be_listed_stop_trimming_and_not_copying(world: World) -> None:
    broker = Counted(world)
    broker.refuses = {"groups"}
    observation = observer(world, broker)(world.partition, world.name)
    assert observation.groups.holds is None
    assert [segment.base_offset for segment in observation.segments] == world.bases


def test_one_question_that_fails_skips_nothing(world: World) -> None:
    """A missing answer is no answer, and never "there is nothing"."""
    broker = Counted(world)
    process = world.process()
    process.context = replace(process.context, broker=broker.control)
    worker = process.worker(observe=observer(world, broker.control))
    for question in ("bounds", "config"):
        broker.refuses = {question}
        process.work(worker)
        assert process.status().last_error == "no permission"
        assert world.topic.appends == 0
        world.clock.advance(1)
    broker.refuses = set()
    process.work(worker)
    assert process.status().last_error is None
    assert [segment.offsets.start for segment in world.view().readable] == world.rolled


def test_a_broker_that_retires_segments_while_the_folder_is_looked_at_ends_no_term(world: World) -> None:
    """Retention renames files at any moment: one may be listed, and deleted when it is opened."""
    path = world.file(world.bases[0])
    retired = path.with_name(f"{path.name}.deleted")
    over = threading.Event()

    def retire() -> None:
        while not over.wait(0.001):
            path.rename(retired)
            retired.rename(path)

    thread = threading.Thread(target=retire)
    thread.start()
    try:
        looks = [len(world.log.snapshot(world.partition, world.name).segments) for _ in range(300)]
    finally:
        over.set()
        thread.join()
    assert set(looks) <= {len(world.bases), len(world.bases) - 1}


def test_a_look_that_missed_a_segment_makes_no_other_stand_for_its_offsets(world: World) -> None:
    hidden, where = world.file(world.bases[1]), world.folder.parent / "hidden"
    process = world.process()
    session = process.begin()
    hidden.rename(where)
    wrong = process.candidate(session)
    assert wrong.next_base == world.bases[1]
    where.rename(hidden)
    with pytest.raises(Fenced, match="left the folder"):
        run(copy_segment(session, wrong, process.tools))
    assert world.check_promises().segments == {}


def test_a_folder_that_left_is_fenced_and_one_that_cannot_be_read_is_tried_again(world: World) -> None:
    checkpoint = world.folder / "leader-epoch-checkpoint"
    text = checkpoint.read_text()
    checkpoint.unlink()
    checkpoint.mkdir()
    with pytest.raises(Unavailable, match="cannot be read"):
        world.log.snapshot(world.partition, world.name)
    checkpoint.rmdir()
    checkpoint.write_text(text)
    world.folder.rename(world.folder.with_name(f"{world.folder.name}.{'0' * 32}-delete"))
    with pytest.raises(Fenced, match="not on these disks"):
        world.log.snapshot(world.partition, world.name)


def test_a_disk_that_cannot_be_read_fails_a_copy_and_not_the_agent(world: World) -> None:
    """EISDIR stands for EIO: an error of the operating system in the middle of reading."""
    file = world.file(world.bases[0], ".txnindex")
    file.mkdir()
    process = world.process()
    worker = process.work()
    assert "cannot be read" in (process.status().not_copied or "")
    file.rmdir()
    world.clock.advance(60)
    process.work(worker)
    assert process.status().last_error is None
    assert world.local_start() == world.bases[-1]


def gauges(metrics: Metrics) -> dict[str, float]:
    lines = metrics.exposition().decode().splitlines()
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if not line.startswith("#")}


def test_the_gauges_tell_what_lags_and_what_is_stored(world: World) -> None:
    process = world.process()
    metrics = Metrics()
    feed_gauges(metrics, process.board, process.view, process.context.clock)
    worker = process.worker()

    def full(operation: str, key: str, writes: int) -> None:
        if f"{world.bases[2]:020d}" in key and operation == "put":
            raise StorageFull("no room")

    world.faults = full
    process.work(worker)
    at = f'{{partition="0",topic="{world.name}"}}'
    values = gauges(metrics)
    behind = world.rolled[2:]
    assert values["tierstate_unreadable_gauges"] == 0
    assert values[f"tierstate_remote_copy_lag_segments{at}"] == len(behind)
    assert values[f"tierstate_remote_copy_lag_bytes{at}"] == sum(world.file(base).stat().st_size for base in behind)
    assert values[f"tierstate_remote_log_size_bytes{at}"] == sum(
        world.file(base).stat().st_size for base in world.rolled[:2]
    )
    world.faults = lambda operation, key, writes: None
    world.clock.advance(60)
    process.work(worker)
    values = gauges(metrics)
    assert values[f"tierstate_remote_copy_lag_segments{at}"] == 0
    assert values[f"tierstate_remote_copy_lag_bytes{at}"] == 0
    assert values["tierstate_integrity_holds"] == 0
    worker.rest()
    assert f"tierstate_remote_copy_lag_segments{at}" not in gauges(metrics), "only the leader's agent knows"


def test_a_topic_whose_settings_the_agent_may_not_read_is_measured_as_never_copied(world: World) -> None:
    process, broker = world.process(), Counted(world)
    broker.refuses = {"config"}
    metrics = Metrics()
    feed_gauges(metrics, process.board, process.view, process.context.clock)
    worker = process.worker(observe=observer(world, broker))
    process.work(worker)
    at = f'{{partition="0",topic="{world.name}"}}'
    values = gauges(metrics)
    assert values[f"tierstate_never_copied{at}"] == 1
    assert values[f"tierstate_consecutive_failures{at}"] == 1
    assert values['tierstate_partitions_not_copied{reason="access-denied"}'] == 1
    assert f"tierstate_remote_copy_lag_segments{at}" not in values, "unknown, and not nothing"
    broker.refuses = set()
    world.clock.advance(60)
    process.work(worker)
    assert gauges(metrics)[f"tierstate_never_copied{at}"] == 0


def after_a_fenced_copy(world: World) -> Process:
    """Return the process that leads now."""
    process, other = world.process(), world.process()
    session = process.begin()
    candidate = process.candidate(session)
    other.begin()
    with pytest.raises(Fenced):
        run(copy_segment(session, candidate, process.tools))
    other.work()
    return other


def test_abandoned_copies_and_fenced_facts_are_counted(world: World) -> None:
    other = after_a_fenced_copy(world)
    metrics = Metrics()
    feed_gauges(metrics, other.board, other.view, other.context.clock)
    values = gauges(metrics)
    at = f'{{partition="0",topic="{world.name}"}}'
    assert values[f"tierstate_abandoned_segments{at}"] == 1
    assert values["tierstate_fenced_facts"] == 1


def test_refused_partitions_are_counted_by_reason(new_world: Callable[..., World]) -> None:
    world = new_world("none", {"cleanup.policy": "compact"})
    process = world.process()
    process.work()
    metrics = Metrics()
    feed_gauges(metrics, process.board, process.view, process.context.clock)
    assert gauges(metrics)['tierstate_refused_partitions{reason="refused-compacted"}'] == 1


def test_the_expiry_of_uncopied_records_is_foreseen(new_world: Callable[..., World]) -> None:
    world = new_world("none", {"retention.ms": str(10**15)})
    process = world.process()
    world.broker.open_transaction(world.name, 0, Offset(0))
    process.work()
    segments = world.log.snapshot(world.partition, world.name).segments[:-1]
    oldest = min(segment.max_timestamp for segment in segments)
    now = world.clock.now_ms()
    shown = process.board.find(world.name, 0, now)
    assert shown is not None
    assert shown["uncopied_expires_at"] == oldest + 10**15
    assert shown["uncopied_expires_in_s"] == (oldest + 10**15 - now) / 1000
    world.broker.open_transaction(world.name, 0, None)
    process.work()
    assert process.status().uncopied_expires_at is None
