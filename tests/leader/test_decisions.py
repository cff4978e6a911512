"""Tables without a world: the next segment to copy, the refusals, the settings that rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.rules.test_trim import ALL, BOUNDS, LATER, SEGMENTS, build, copied
from tests.state.conftest import NOW
from tests.twins.manual_clock import ManualClock
from tierstate.broker.groups import GroupPosition, GroupProblem, TopicGroups
from tierstate.leader.observe import GroupHolds, GroupPolicy
from tierstate.leader.open import overridden
from tierstate.rules.candidates import CopyCandidate, copied_offset, next_candidate
from tierstate.rules.decide import Memory, OperationKind, Policy, decide, refusal, retention_of, standing_order
from tierstate.rules.observed import NO_GROUPS, GroupsSeen, Observed, PrefixProof
from tierstate.rules.orders import CutLocal
from tierstate.rules.reasons import Reason, Why
from tierstate.rules.trim import NoTrim, TrimBefore
from tierstate.runtime.settings import Settings
from tierstate.state.epochs import Lineage
from tierstate.state.facts import LiveFact, OperatorOrder, OrderKind
from tierstate.state.local_segments import LocalSegment
from tierstate.state.offsets import Offset, OffsetRange, TimestampMs
from tierstate.state.retention import TopicConfig

EPOCHS = Lineage.of((0, 0))
CANDIDATE = CopyCandidate(Offset(100), Offset(200), 1000)
POLICY = Policy(copy_lag_ms=0, trim_delay_ms=1000, allow_unclean=False)
CONFIG = TopicConfig(local_retention_ms=0)


def not_copied(kind: Reason, said: str) -> Why:
    return Why(kind, said)


def kind_of(found: CopyCandidate | Why) -> Reason | None:
    return found.kind if isinstance(found, Why) else None


def test_the_candidate_is_the_rolled_segment_after_what_is_copied() -> None:
    assert next_candidate(copied((0, 99)), seen(), NOW) == CANDIDATE
    assert CANDIDATE.offsets == OffsetRange(Offset(100), Offset(199))


def test_segments_that_another_leader_cut_elsewhere_are_copied_again_from_their_base() -> None:
    """Replicas roll at different offsets: the segment that *contains* the next offset, or 150..199 is lost for ever."""
    assert next_candidate(copied((0, 149)), seen(), NOW) == CANDIDATE


def test_a_failed_segment_is_not_skipped_for_a_later_one() -> None:
    """The copied offset is the end of a gap-free prefix, never a maximum."""
    view = copied((0, 99), (200, 299))
    assert copied_offset(view, BOUNDS) == 99
    assert next_candidate(view, seen(), NOW) == CANDIDATE


def test_the_active_segment_is_never_a_candidate() -> None:
    assert next_candidate(ALL, seen(), NOW) == not_copied(
        Reason.ALL_COPIED,
        "every rolled segment is copied, up to offset 399; the active one begins at 400 and has 1,000 bytes",
    )
    assert kind_of(next_candidate(copied(), seen(segments=SEGMENTS[:1]), NOW)) == Reason.ALL_COPIED
    assert kind_of(next_candidate(copied(), seen(segments=()), NOW)) == Reason.ALL_COPIED


def test_an_offset_without_a_leader_epoch_is_not_copied_for_ever() -> None:
    """Its copy would be in no lineage there, so it would still be missing: the same segment, again and again."""
    log = Lineage.of((0, 101))
    candidate = next_candidate(copied((0, 99)), seen(checkpoint=log, epochs=log), NOW)
    sentence = "no leader epoch of offset 100 is known: the broker's checkpoint begins at 101"
    assert candidate == not_copied(Reason.NO_EPOCH, f"{sentence}, and the batch shows none that fits")
    assert next_candidate(copied((0, 99)), seen(epochs=Lineage.of((0, 100))), NOW) == CANDIDATE
    view, later = copied((0, 99)), Lineage.of((0, 0), (7, 100))  # the term in force has no epoch 7
    assert view.term is not None
    in_force = seen(epochs=later, bounds=replace(BOUNDS, leader_epoch=view.term.epoch))
    assert kind_of(next_candidate(view, in_force, NOW)) == Reason.NO_EPOCH
    assert next_candidate(view, seen(epochs=later), NOW) == CANDIDATE, "a new term begins first"


@pytest.mark.parametrize(("stable", "copies"), [(201, True), (200, True), (199, False), (101, False), (100, False)])
def test_a_segment_must_lie_wholly_below_the_last_stable_offset(stable: int, copies: bool) -> None:
    bounds = replace(BOUNDS, last_stable_offset=Offset(stable))
    candidate = next_candidate(copied((0, 99)), seen(bounds=bounds), NOW, pinned_s=12.4)
    sentence = f"the last stable offset {stable} is not past segment 100..199 of 1,000 bytes, for 12 s at least"
    no = not_copied(Reason.OPEN_TRANSACTION, f"a transaction is open: {sentence}")
    assert candidate == (CANDIDATE if copies else no)


def test_a_segment_that_a_replica_lacks_waits_for_it_and_no_transaction_is_blamed() -> None:
    bounds = replace(BOUNDS, last_stable_offset=Offset(150), high_watermark=Offset(150))
    assert next_candidate(copied((0, 99)), seen(bounds=bounds), NOW) == not_copied(
        Reason.NOT_REPLICATED,
        "high watermark 150 is not past segment 100..199 of 1,000 bytes: a replica in sync has no more",
    )


def test_copying_goes_on_at_the_local_start_when_there_is_a_gap_below_it() -> None:
    bounds = replace(BOUNDS, local_start=Offset(100))
    assert copied_offset(copied((0, 49)), bounds) == 99
    assert next_candidate(copied((0, 49)), seen(bounds=bounds, segments=SEGMENTS[1:]), NOW) == CANDIDATE


def test_copying_begins_at_the_log_start_when_that_is_higher() -> None:
    assert next_candidate(copied(log_start=100), seen(), NOW) == CANDIDATE


def test_a_local_start_inside_a_segment_takes_that_segment() -> None:
    bounds = replace(BOUNDS, local_start=Offset(150))
    assert next_candidate(copied(), seen(bounds=bounds), NOW) == CANDIDATE


def test_an_offset_without_a_local_segment_is_named() -> None:
    candidate = next_candidate(copied((0, 99)), seen(segments=SEGMENTS[2:]), NOW)
    sentence = "offset 100 is in no local segment: the next one begins at 200"
    assert candidate == not_copied(Reason.NO_LOCAL_SEGMENT, sentence)


@pytest.mark.parametrize(("age", "copies"), [(0, False), (4999, False), (5000, True), (-1, True), (-(10**9), True)])
def test_young_segments_wait_for_the_copy_lag_and_future_ones_do_not(age: int, copies: bool) -> None:
    segment = LocalSegment(Offset(100), Offset(200), 1000, TimestampMs(NOW - age))
    candidate = next_candidate(copied((0, 99)), seen(segments=(segment, SEGMENTS[-1])), NOW, lag_ms=5000)
    assert candidate == CANDIDATE if copies else kind_of(candidate) == Reason.COPY_LAG


def test_a_young_segment_says_when_it_will_be_copied() -> None:
    segment = LocalSegment(Offset(100), Offset(200), 1000, TimestampMs(NOW - 2000))
    candidate = next_candidate(copied((0, 99)), seen(segments=(segment, SEGMENTS[-1])), NOW, lag_ms=5000)
    assert candidate == not_copied(Reason.COPY_LAG, "segment 100..199 is 2 s old, younger than copy.lag 5 s: in 3 s")


# --- decide ------------------------------------------------------------------------------------------------------


def seen(**changes: Any) -> Observed:
    return replace(Observed(SEGMENTS, EPOCHS, EPOCHS, BOUNDS, CONFIG, NO_GROUPS), **changes)


def test_copying_and_trimming_are_decided_side_by_side() -> None:
    decision = decide(copied((0, 99)), seen(), POLICY, LATER)
    assert decision.intents == {OperationKind.COPY: CANDIDATE, OperationKind.TRIM: TrimBefore(Offset(100))}
    assert not decision.idle


def test_nothing_left_is_idle() -> None:
    bounds = replace(BOUNDS, local_start=Offset(400))
    assert decide(ALL, seen(bounds=bounds), POLICY, LATER).idle


def test_unknown_groups_stop_trimming_only() -> None:
    decision = decide(copied((0, 99)), seen(groups=GroupsSeen(None, "a broker is away")), POLICY, LATER)
    assert decision.copy == CANDIDATE
    sentence = "consumer groups could not be listed completely: a broker is away"
    assert decision.trim == NoTrim(Why(Reason.GROUPS_UNKNOWN, sentence))


def test_a_tier_state_topic_that_drifted_stops_everything_but_copying() -> None:
    decision = decide(copied((0, 99)), seen(drift="cleanup.policy is delete"), POLICY, LATER)
    assert decision.intents == {OperationKind.COPY: CANDIDATE}
    kept = Why(Reason.TIER_STATE_UNSAFE, "the tier-state topic is not safe any more: cleanup.policy is delete")
    assert (decision.trim, decision.expire, decision.sweep) == (NoTrim(kept), kept, kept.text)
    assert decision.erase == kept.text


def test_while_a_copy_of_the_cluster_writes_nothing_is_done() -> None:
    kept = Why(Reason.PREFIX_CONTESTED, "a copy runs")
    decision = decide(copied((0, 99)), seen(prefix=PrefixProof(kept, kept, kept)), POLICY, LATER)
    assert decision.idle
    assert (decision.copy, decision.trim, decision.expire) == (kept, NoTrim(kept), kept)


def test_an_agent_on_trial_copies_and_trims_and_deletes_nothing_remote() -> None:
    trial = Why(Reason.PREFIX_ON_TRIAL, "it took over")
    decision = decide(ALL, seen(prefix=PrefixProof(delete=trial)), POLICY, LATER)
    assert decision.intents.keys() == {OperationKind.TRIM}
    assert decision.expire == trial


def test_an_agent_that_waits_for_a_proof_copies_and_deletes_nothing_in_either_tier() -> None:
    waits = Why(Reason.PREFIX_UNPROVEN, "no answer yet")
    decision = decide(copied((0, 99)), seen(prefix=PrefixProof(None, waits, waits)), POLICY, LATER)
    assert decision.intents.keys() == {OperationKind.COPY}
    assert (decision.trim, decision.expire) == (NoTrim(waits), waits)


def test_a_degraded_partition_is_neither_copied_nor_trimmed() -> None:
    decision = decide(copied(extra=(build.unknown(9, "log-start/1/0/9"),)), seen(), POLICY, LATER)
    assert isinstance(decision.copy, Why)
    assert isinstance(decision.trim, NoTrim)
    assert decision.copy == decision.trim.why
    assert decision.copy.kind == Reason.DEGRADED


@pytest.mark.parametrize(
    ("kinds", "stops"),
    [
        ([], None),
        ([OrderKind.PAUSE], (Reason.PAUSED, "pause ordered by ops at ")),
        ([OrderKind.PAUSE, OrderKind.RESUME], None),
        ([OrderKind.RESUME, OrderKind.PAUSE], (Reason.PAUSED, "pause ordered by ops at ")),
        ([OrderKind.PAUSE, OrderKind.DISABLE_KEEP], (Reason.DISABLED, "disable-keep ordered by ops at ")),
        ([OrderKind.DISABLE_DELETE, OrderKind.DELETE_RECORDS], (Reason.DISABLED, "disable-delete ordered by ops at ")),
        ([OrderKind.DELETE_RECORDS], None),
    ],
)
def test_the_newest_order_by_position_stops_everything(
    kinds: list[OrderKind], stops: tuple[Reason, str] | None
) -> None:
    """All of these were ordered at the same time by the clock."""
    view = copied(extra=tuple(build.order(20 + at, at, kind) for at, kind in enumerate(kinds)))
    order = standing_order(view)
    decision = decide(view, seen(), POLICY, LATER)
    if stops:
        assert order is not None
        assert (order.kind, order.text.startswith(stops[1])) == (stops[0], True)
        assert (decision.copy, decision.trim) == (order, NoTrim(order))
    else:
        assert order is None
        assert not decision.idle


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (TopicConfig(), None),
        (TopicConfig(cleanup_policy=frozenset()), None),
        (TopicConfig(cleanup_policy=frozenset({"compact"})), "compacted topic: cleanup.policy=compact"),
        (
            TopicConfig(cleanup_policy=frozenset({"compact", "delete"})),
            "compacted topic: cleanup.policy=compact,delete",
        ),
        (TopicConfig(remote_storage_enable=True), "remote.storage.enable=true: Kafka tiers it itself"),
    ],
)
def test_what_cannot_be_tiered_is_refused(config: TopicConfig, reason: str | None) -> None:
    decision = refusal(config)
    assert (decision.text if decision else None) == reason


def cut(before: int) -> LiveFact:
    kind, lineage = OrderKind.DELETE_RECORDS, Lineage.of((0, 0))
    order = OperatorOrder(build.partition, build.fact_id(1), kind, Offset(before), False, "ops", NOW, lineage)
    return build.live(20, order)


def test_remote_segments_of_a_topic_excluded_later_still_expire() -> None:
    """It expires by retention too. Only orders delete from a refused topic: Kafka's retention means something else."""
    why = Why(Reason.EXCLUDED, "excluded")
    config = replace(CONFIG, retention_ms=0)
    decision = decide(ALL, seen(config=config), POLICY, TimestampMs(LATER + 10**9), barred=why)
    assert (decision.copy, decision.trim) == (why, NoTrim(why))
    assert set(decision.intents) == {OperationKind.EXPIRE}
    compacted = replace(config, cleanup_policy=frozenset({"compact"}))
    decision = decide(ALL, seen(config=compacted), POLICY, TimestampMs(LATER + 10**9), barred=refusal(compacted))
    assert decision.idle
    ordered = copied((0, 99), extra=(cut(100),))
    decision = decide(ordered, seen(config=compacted), POLICY, LATER, barred=refusal(compacted))
    assert set(decision.intents) == {OperationKind.EXPIRE}


def test_an_order_never_cuts_the_brokers_log_of_a_refused_topic() -> None:
    """Kafka refuses to cut a compacted topic; one that it tiers is its own."""
    ordered = copied((100, 199), log_start=100, extra=(cut(100),))
    assert isinstance(decide(ordered, seen(), POLICY, LATER).expire, CutLocal)
    compacted = replace(CONFIG, cleanup_policy=frozenset({"compact"}))
    assert decide(ordered, seen(config=compacted), POLICY, LATER, barred=refusal(compacted)).idle


def test_a_segment_of_an_old_format_is_not_tried_again_and_the_next_one_is() -> None:
    old = Why(Reason.REFUSED_FORMAT, "message format older than v2")
    assert decide(copied(), seen(), POLICY, LATER, Memory(too_old=(Offset(0), old))).copy == old
    decision = decide(copied(log_start=100), seen(), POLICY, LATER, Memory(too_old=(Offset(0), old)))
    assert decision.copy == CANDIDATE


# --- settings over Kafka's ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "kafka", "expected"),
    [
        ({}, {}, {}),
        ({"retention": 10}, {"retention_ms": 20_000}, {"retention_ms": 10_000}),
        ({"retention": 30}, {"retention_ms": 20_000}, {"retention_ms": 20_000}),
        ({"retention": 30}, {"retention_ms": -1}, {"retention_ms": 30_000}),
        ({"retention_bytes": 5}, {"retention_bytes": -1}, {"retention_bytes": 5}),
        ({"retention_bytes": 5}, {"retention_bytes": 3}, {"retention_bytes": 3}),
        ({"local_retention": 10}, {"retention_ms": 20_000}, {"local_retention_ms": 10_000}),
        ({"local_retention": 30}, {"retention_ms": 20_000}, {"local_retention_ms": 20_000}),
        (
            {"local_retention": 10},
            {"retention_ms": 20_000, "local_retention_ms": 5000},
            {"local_retention_ms": 5000},
        ),
        ({"local_retention": 10}, {"retention_ms": -1}, {"local_retention_ms": 10_000}),
        ({"local_retention": 0}, {"retention_ms": -1}, {"local_retention_ms": 0}),
        ({"local_retention_bytes": 0}, {"retention_bytes": -1}, {"local_retention_bytes": 0}),
        (
            {"retention": 10, "local_retention": 15},
            {"retention_ms": -1},
            {"retention_ms": 10_000, "local_retention_ms": 10_000},
        ),
    ],
)
def test_our_settings_count_where_they_are_shorter(
    own: dict[str, int], kafka: dict[str, Any], expected: dict[str, Any]
) -> None:
    settings = Settings.model_validate({"tiering": {"topics": {"orders": own}}})
    config = replace(TopicConfig(), **kafka)
    assert overridden(settings, "orders", config) == replace(config, **expected)
    assert overridden(settings, "others", config) == config


# --- groups ------------------------------------------------------------------------------------------------------


def at(**positions: int | None) -> TopicGroups:
    group_positions = [GroupPosition(name, 0, None if p is None else Offset(p)) for name, p in positions.items()]
    return TopicGroups((*group_positions, GroupPosition("elsewhere", 1, Offset(0))))


def test_groups_hold_at_their_commit_and_members_without_one_at_the_local_start() -> None:
    holds = GroupHolds(GroupPolicy(True, ("x.*",), 60.0), ManualClock())
    bounds = replace(BOUNDS, local_start=Offset(7))
    assert holds.holds("t", 0, at(a=50, b=450, c=None, xyz=3), bounds) == {"a": 50, "c": 7}


def test_groups_that_are_not_all_known_hold_everything() -> None:
    holds = GroupHolds(GroupPolicy(True, ("x.*",), 60.0), ManualClock())
    assert holds.holds("t", 0, TopicGroups((), (GroupProblem(None, "hidden"),)), BOUNDS) is None
    assert holds.holds("t", 0, TopicGroups((), (GroupProblem("a", "hidden"),)), BOUNDS) is None
    assert holds.holds("t", 0, TopicGroups((), (GroupProblem("xyz", "hidden"),)), BOUNDS) == {}


def test_a_hold_ends_after_its_longest_time_and_restarts_with_every_commit() -> None:
    clock = ManualClock()
    holds = GroupHolds(GroupPolicy(True, (), 60.0), clock)
    assert holds.holds("t", 0, at(a=50, b=60), BOUNDS) == {"a": 50, "b": 60}
    clock.advance(60)
    assert holds.holds("t", 0, at(a=50, b=61), BOUNDS) == {"a": 50, "b": 61}
    clock.advance(1)
    assert holds.holds("t", 0, at(a=50, b=61), BOUNDS) == {"b": 61}
    assert holds.holds("t", 0, at(a=51, b=61), BOUNDS) == {"a": 51, "b": 61}


def test_a_consumer_that_waits_at_the_end_of_an_idle_topic_does_not_lose_its_protection() -> None:
    clock = ManualClock()
    holds = GroupHolds(GroupPolicy(True, (), 60.0), clock)
    assert holds.holds("t", 0, at(a=450), BOUNDS) == {}
    clock.advance(10**6)
    assert holds.holds("t", 0, at(a=450), replace(BOUNDS, high_watermark=Offset(460))) == {"a": 450}


def test_partitions_and_topics_are_remembered_apart() -> None:
    clock = ManualClock()
    holds = GroupHolds(GroupPolicy(True, (), 60.0), clock)
    holds.holds("t", 0, at(a=50), BOUNDS)
    clock.advance(61)
    assert holds.holds("u", 0, at(a=50), BOUNDS) == {"a": 50}
    assert holds.holds("t", 1, at(), BOUNDS) == {"elsewhere": 0}
    assert holds.holds("t", 0, at(a=50), BOUNDS) == {}


def test_an_archive_keeps_the_remote_tier_by_a_retention_of_its_own_and_trims_nothing() -> None:
    """Kafka's own retention stays what the alarm about uncopied data is computed from."""
    settings = Settings.model_validate({"trim": {"enabled": False}, "expire": {"topics": ["orders=7y"]}})
    config = overridden(settings, "orders", TopicConfig(retention_ms=1000, retention_bytes=5))
    assert (config.retention_ms, config.remote_ms, config.remote_bytes) == (1000, 7 * 365 * 86_400_000, -1)
    assert (retention_of(config).total_ms, retention_of(config).total_bytes) == (7 * 365 * 86_400_000, -1)
    forever = retention_of(overridden(settings, "others", TopicConfig(retention_ms=1000, retention_bytes=5)))
    assert (forever.total_ms, forever.total_bytes, forever.local_ms) == (-1, -1, 1000)
