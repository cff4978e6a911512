"""Trimming deletes local data only for whole, checked objects, through one request to the agent's own broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.leader.expiry import Expiry
from tests.leader.world import TRIMS_ALL, Process, World, nobody_reads, object_keys, run_with
from tests.rules.test_trim import copied
from tierstate.leader.object_proof import ObjectProof
from tierstate.leader.observe import DRIFT_AGE_S, GroupPolicy
from tierstate.leader.trimmer import given_up, let_go, still_replaced, trim_local
from tierstate.rules.reasons import Reason
from tierstate.runtime.listener import LocalTrimmed, TrimFailed
from tierstate.runtime.operation import run
from tierstate.schemas.codec import encode_fact
from tierstate.state.errors import CorruptData, Fenced, StorageUnavailable, TimedOut
from tierstate.state.facts import IntegrityHold, OperatorOrder, OrderKind
from tierstate.state.ids import BrokerId, FactId
from tierstate.state.keys import key_of
from tierstate.state.offsets import Offset


def say_hold(world: World) -> None:
    hold = IntegrityHold(
        world.partition, FactId.of(b"h" * 16), BrokerId(2), "two values", "a", "b", world.clock.now_ms()
    )
    world.topic.append(0, key_of(hold), encode_fact(hold))


def say_order(world: World, kind: OrderKind, number: int = 1) -> None:
    identity = FactId.of(number.to_bytes(16, "big"))
    order = OperatorOrder(world.partition, identity, kind, None, False, "ops", world.clock.now_ms())
    world.topic.append(0, key_of(order), encode_fact(order))


def test_a_trim_moves_the_brokers_start_to_the_end_of_what_is_copied(world: World) -> None:
    process = world.process()
    process.work()
    assert world.local_start() == world.bases[-1]
    assert world.view().trim_intended == world.bases[-1]
    assert [event.offset for event in process.events if isinstance(event, LocalTrimmed)] == [world.bases[-1]]
    assert process.status().not_trimmed is not None
    world.check_promises()


def test_records_below_the_log_start_need_no_copy(two_expire: Expiry, world: World) -> None:
    """Our retention is shorter than the broker's: records that ours deleted are in the broker's log, only there."""
    two_expire.work()
    assert world.local_start() == 0
    process = world.process()
    process.work()
    assert process.status().consecutive_failures == 0
    assert world.local_start() == world.bases[-1]


def test_the_log_start_of_the_tier_is_not_moved_by_an_own_trim(world: World) -> None:
    world.process().work()
    assert world.view().log_start == 0


@pytest.mark.parametrize("kind", range(3))
@pytest.mark.parametrize("how", ["missing", "shorter", "longer"])
def test_an_object_that_is_not_whole_keeps_local_data(kind: int, how: str, world: World) -> None:
    process = world.process()
    session = process.copy_all()
    key = object_keys(world.view().readable[1])[kind]
    data = world.store.get(key)
    world.store.delete(key)
    if how != "missing":
        world.store.put_if_absent(key, data[:-1] if how == "shorter" else data + b"x")
    trimmed = run(
        trim_local(session, ObjectProof(world.store), Offset(world.bases[2]), process.events.append, nobody_reads)
    )
    assert trimmed == world.bases[1], "what lies before it goes"
    appends_before = world.topic.appends
    with pytest.raises(CorruptData, match=key):
        run(trim_local(session, ObjectProof(world.store), Offset(world.bases[2]), process.events.append, nobody_reads))
    assert world.topic.appends == appends_before, "an intention that cannot be carried out is not said"
    assert world.local_start() == world.bases[1]


def test_an_object_that_is_missing_is_shown_and_asked_for_less_and_less_often(world: World) -> None:
    process = world.process()
    worker = process.worker(delay_ms=60_000)
    process.work(worker)
    key = object_keys(world.view().readable[0])[0]
    data = world.store.get(key)
    world.store.delete(key)
    world.clock.advance(60)
    appends_before = world.topic.appends
    refusals = []
    for _ in range(600):
        process.work(worker)
        refusals.append(process.status().consecutive_failures)
        world.clock.advance(1)
    assert 5 < refusals[-1] < 15
    assert world.topic.appends == appends_before
    assert key in (process.status().not_trimmed or "")
    assert process.status().not_copied_reason == Reason.ALL_COPIED
    assert any(isinstance(event, TrimFailed) and key in event.error for event in process.events)
    world.store.put_if_absent(key, data)
    world.clock.advance(300)
    process.work(worker)
    assert world.local_start() == world.bases[-1]
    assert (process.status().consecutive_failures, process.status().last_error) == (0, None)


def test_a_trim_that_fails_holds_up_no_copy(world: World) -> None:
    process = world.process()
    worker = process.worker(delay_ms=60_000)
    process.work(worker)
    world.store.delete(object_keys(world.view().readable[0])[0])
    world.clock.advance(60)
    for _ in range(100):
        process.work(worker)
        world.clock.advance(1)
    world.roll()
    process.work(worker)
    assert process.status().copied_to == world.bases[-1] - 1


def test_a_lost_answer_is_looked_up_in_the_bounds(world: World) -> None:
    process = world.process()
    session = process.copy_all()
    world.broker.lose_answers()
    assert (
        run(trim_local(session, ObjectProof(world.store), Offset(world.bases[2]), process.events.append, nobody_reads))
        == world.bases[2]
    )


def test_a_request_that_was_lost_on_its_way_is_an_error_and_tried_again_later(world: World) -> None:
    process = world.process()
    session = process.copy_all()

    lossy: Any = Lossy(world)
    session.context = replace(session.context, broker=lossy)
    with pytest.raises(TimedOut):
        run(trim_local(session, ObjectProof(world.store), Offset(world.bases[2]), process.events.append, nobody_reads))
    assert world.local_start() == 0
    session.context = process.context
    assert (
        run(trim_local(session, ObjectProof(world.store), Offset(world.bases[2]), process.events.append, nobody_reads))
        == world.bases[2]
    )


class Lossy:
    """A network that swallows DeleteRecords on its way to the broker."""

    def __init__(self, world: World) -> None:
        self._broker = world.broker

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)

    def delete_records_on(self, *asked: object) -> Offset:
        raise TimedOut("DeleteRecords was sent, its outcome is unknown")


def trim_meanwhile(process: Process, happen: Callable[[], object], step: str = "append trim-intended") -> None:
    session = process.copy_all()
    act = trim_local(
        session, ObjectProof(process.world.store), Offset(process.world.bases[2]), process.events.append, nobody_reads
    )
    run_with(act, step, happen)


def test_a_hold_that_lands_after_the_decision_stops_the_trim(world: World) -> None:
    process = world.process()
    with pytest.raises(Fenced, match="held"):
        trim_meanwhile(process, lambda: say_hold(world))
    assert world.local_start() == 0


@pytest.mark.parametrize("step", ["append trim-intended", "delete-records"])
def test_an_order_to_pause_that_lands_after_the_decision_stops_the_trim(step: str, world: World) -> None:
    process = world.process()
    with pytest.raises(Fenced, match="pause"):
        trim_meanwhile(process, lambda: say_order(world, OrderKind.PAUSE), step)
    assert world.local_start() == 0


def test_an_erased_intention_is_not_carried_out(world: World) -> None:
    """The fact was erased: afterwards the cause of the cut would be unknown."""
    process = world.process()

    def erase() -> None:
        (intended,) = [key for key in world.topic.keys() if "/trim/" in key]
        world.topic.append(0, intended, None)

    with pytest.raises(Fenced, match="what replaces the local data changed"):
        trim_meanwhile(process, erase, "delete-records")
    assert world.local_start() == 0


def test_a_tier_state_topic_that_drifts_after_the_decision_stops_the_trim(world: World) -> None:
    process = world.process()
    with pytest.raises(Fenced, match=r"not safe any more: cleanup\.policy is delete"):
        trim_meanwhile(process, lambda: world.topic.drift.append("cleanup.policy is delete"), "delete-records")
    assert world.local_start() == 0


def test_a_paused_partition_is_neither_copied_nor_trimmed_until_it_is_resumed(world: World) -> None:
    say_order(world, OrderKind.PAUSE)
    process = world.process()
    worker = process.work()
    assert process.status().not_copied == process.status().not_trimmed
    assert process.status().not_copied_reason == Reason.PAUSED
    assert world.view().readable == ()
    say_order(world, OrderKind.RESUME, 2)
    world.clock.advance(60)
    process.work(worker)
    assert world.local_start() == world.bases[-1]


def test_a_store_that_is_away_keeps_local_data(world: World) -> None:
    def away(operation: str, key: str, writes: int) -> None:
        raise StorageUnavailable("no answer")

    process = world.process()
    session = process.copy_all()
    world.faults = away
    with pytest.raises(StorageUnavailable):
        run(trim_local(session, ObjectProof(world.store), Offset(world.bases[2]), process.events.append, nobody_reads))
    assert world.local_start() == 0


def test_a_trim_waits_for_the_delay_after_the_copy(world: World) -> None:
    process = world.process()
    worker = process.work(process.worker(delay_ms=900_000))
    assert world.local_start() == 0
    assert process.status().not_trimmed_reason == Reason.TRIM_DELAY
    world.clock.advance(899)
    process.work(worker)
    assert world.local_start() == 0
    world.clock.advance(1)
    process.work(worker)
    assert world.local_start() == world.bases[-1]


def test_a_group_holds_what_it_has_not_read_and_is_named(world: World) -> None:
    process = world.process()
    world.broker.commit("slow", world.name, 0, world.bases[2] + 3)
    world.broker.commit("fast", world.name, 0, world.end())
    worker = process.work()
    assert world.local_start() == world.bases[2]
    assert process.status().held_by == ("slow",)
    assert (process.status().not_trimmed or "").startswith("consumer group slow still reads there, at offset ")
    world.broker.commit("slow", world.name, 0, world.end())
    process.work(worker)
    assert world.local_start() == world.bases[2], "one listing counts for five minutes"
    world.clock.advance(300)
    process.work(worker)
    assert world.local_start() == world.bases[-1]
    assert process.status().held_by == ()


def test_a_group_with_a_member_and_no_commit_holds_everything(world: World) -> None:
    world.broker.join("new", world.name, 0)
    process = world.process()
    process.work()
    assert world.local_start() == 0
    assert process.status().held_by == ("new",)


def test_an_incomplete_listing_of_groups_means_no_trim(world: World) -> None:
    world.broker.hide_groups("no permission")
    process = world.process()
    process.work()
    assert world.local_start() == 0
    assert (process.status().not_trimmed or "").startswith("consumer groups could not be listed completely: ")
    assert process.status().copied_to == world.bases[-1] - 1


def test_a_tier_state_topic_whose_configuration_drifted_means_no_trim_until_it_is_right_again(world: World) -> None:
    world.topic.drift = ["cleanup.policy is delete, compact is wanted"]
    process = world.process()
    process.work()
    assert world.local_start() == 0
    assert "cleanup.policy is delete" in (process.status().not_trimmed or "")
    assert process.status().copied_to == world.bases[-1] - 1
    world.topic.drift = []
    world.clock.advance(DRIFT_AGE_S)
    process.work()
    assert world.local_start() > 0


@pytest.mark.parametrize("policy", [GroupPolicy(True, ("tmp-.*",), 1.0), GroupPolicy(False, (), 1.0)])
def test_excluded_groups_hold_nothing(policy: GroupPolicy, world: World) -> None:
    world.broker.commit("tmp-1", world.name, 0, 0)
    process = world.process()
    process.work(process.worker(groups=policy))
    assert world.local_start() == world.bases[-1]


def test_a_group_whose_name_only_begins_like_an_excluded_one_keeps_its_records(world: World) -> None:
    world.broker.commit("tmp-orders", world.name, 0, 0)
    process = world.process()
    process.work(process.worker(groups=GroupPolicy(True, ("tmp",), 1.0)))
    assert world.local_start() == 0


@pytest.mark.parametrize(("offset", "lets_go"), [(99, False), (100, True)])
def test_a_group_keeps_the_very_last_record_that_it_has_not_read(offset: int, lets_go: bool) -> None:
    assert let_go({"reader": Offset(offset)}, Offset(100)) is lets_go


def test_the_segment_that_holds_only_the_first_local_record_is_checked_too() -> None:
    view = copied((0, 99), (100, 199), (200, 299))
    checked = given_up(view, Offset(99), Offset(200))
    assert [each.offsets.start for each in checked] == [0, 100]
    assert [each.offsets.start for each in given_up(view, Offset(100), Offset(201))] == [100, 200]


def test_local_records_that_no_segment_holds_are_not_replaced() -> None:
    for ranges, whole in (
        ([(0, 99), (100, 199)], True),
        ([(0, 99), (101, 199)], False),
        ([(0, 99), (100, 198)], False),
    ):
        view = copied(*ranges)
        assert still_replaced(view, Offset(0), Offset(200), given_up(view, Offset(0), Offset(200))) is whole


def test_a_group_that_stands_still_for_too_long_no_longer_counts(world: World) -> None:
    world.broker.commit("gone", world.name, 0, world.bases[1])
    process = world.process()
    worker = process.work(process.worker(groups=GroupPolicy(True, (), 86_400.0)))
    world.clock.advance(86_400)
    process.work(worker)
    assert world.local_start() == world.bases[1]
    world.clock.advance(1)
    process.work(worker)
    assert world.local_start() == world.bases[-1]


def test_a_group_that_reads_on_counts_however_slowly(world: World) -> None:
    process = world.process()
    worker = process.worker(groups=GroupPolicy(True, (), 86_400.0))
    for offset in range(4):
        world.broker.commit("slow", world.name, 0, offset)
        process.work(worker)
        world.clock.advance(80_000)
    assert world.local_start() == 0


@pytest.mark.parametrize("allowed", [False, True])
def test_topics_with_unclean_elections_are_trimmed_only_when_that_is_allowed(
    allowed: bool, new_world: Callable[..., World]
) -> None:
    world = new_world("none", TRIMS_ALL | {"unclean.leader.election.enable": "true"})
    process = world.process()
    process.work(process.worker(allow_unclean=allowed))
    assert world.local_start() == (world.bases[-1] if allowed else 0)
    assert allowed or "unclean" in (process.status().not_trimmed or "")


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"cleanup.policy": "compact"}, "compacted topic: cleanup.policy=compact"),
        ({"cleanup.policy": "compact,delete"}, "compacted topic: cleanup.policy=compact,delete"),
        ({"remote.storage.enable": "true"}, "remote.storage.enable=true: Kafka tiers it itself"),
    ],
)
def test_a_topic_that_cannot_be_tiered_is_refused_with_its_reason(
    config: dict[str, str], reason: str, new_world: Callable[..., World]
) -> None:
    world = new_world("none", config)
    process = world.process()
    process.work()
    assert world.topic.appends == 0
    assert process.status().refused == process.status().not_copied == process.status().not_trimmed == reason
