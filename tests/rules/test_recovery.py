"""The plan of a recovery, from descriptors alone: the owner epoch of each offset, and the outcome of each segment."""

from __future__ import annotations

from tierstate.rules.recovery import (
    ArchivedPartition,
    FoundSegment,
    PartitionPlan,
    Verdict,
    lineage_of,
    plan_partition,
    plan_partitions,
)
from tierstate.state.coverage import Coverage
from tierstate.state.epochs import LeaderEpoch, Lineage
from tierstate.state.facts import LeaderElected, LogStartAdvanced
from tierstate.state.ids import BrokerId, FactId, RemoteSegmentId, TopicId, TopicIdPartition
from tierstate.state.object_keys import ObjectName
from tierstate.state.offsets import Offset, OffsetRange, Position, TimestampMs
from tierstate.state.segment import AbortedRanges, Compression, RemoteSegment, SegmentState, Term

TIER_TOPIC = TopicId("AAAAAAAAAAAAAAAAAAAAAg")
PARTITION = TopicIdPartition(TopicId("AAAAAAAAAAAAAAAAAAAAAw"), 0)


def segment(
    number: int, start: int, end: int, *epochs: tuple[int, int], term: int | None = None, position: int = 1
) -> RemoteSegment:
    """Return offsets start..end; copied in the last epoch if no other ``term`` is given."""
    lineage = Lineage.of(*epochs)
    epoch = lineage.entries[-1].epoch if term is None else LeaderEpoch(term)
    segment_id = RemoteSegmentId.of(number.to_bytes(16, "big"))
    return RemoteSegment(
        partition=PARTITION,
        topic="orders",
        segment_id=segment_id,
        object_key=str(ObjectName("orders", PARTITION, Offset(start), segment_id)),
        offsets=OffsetRange(Offset(start), Offset(end)),
        last_record_offset=Offset(end),
        record_count=end - start + 1,
        leader_epochs=lineage,
        max_timestamp=TimestampMs(1),
        log_bytes=1000,
        log_object_bytes=100,
        indexes_object_bytes=10,
        manifest_bytes=1,
        log_sha256=bytes(32),
        log_crc32c=7,
        indexes_sha256=bytes(32),
        compression=Compression.NONE,
        encryption_key_id=None,
        transaction_index_empty=True,
        aborted=AbortedRanges.of(()),
        broker_id=BrokerId(1),
        term=Term(epoch, Position(position), FactId.of(bytes(16))),
        copied_at=TimestampMs(number),
    )


def elected(epoch: int, *entries: tuple[int, int]) -> LeaderElected:
    lineage = Lineage.of(*entries)
    return LeaderElected(
        PARTITION,
        "orders",
        LeaderEpoch(epoch),
        FactId.of(bytes(16)),
        BrokerId(1),
        "b1:1",
        lineage,
        Offset(0),
        TimestampMs(1),
    )


def log_start_said(offset: int, *entries: tuple[int, int]) -> LogStartAdvanced:
    term = Term(LeaderEpoch(entries[-1][0]), Position(1), FactId.of(bytes(16)))
    lineage = Lineage.of(*entries)
    return LogStartAdvanced(PARTITION, Offset(offset), term, 1, "retention-time", TimestampMs(0), lineage)


def plan(
    *segments: RemoteSegment,
    log_start: int = 0,
    archived: ArchivedPartition | None = None,
    local_start: int | None = None,
) -> PartitionPlan:
    segments_read = [FoundSegment(each, TimestampMs(0), Offset(log_start), "memory", TIER_TOPIC) for each in segments]
    start = None if local_start is None else Offset(local_start)
    return plan_partition(PARTITION, segments_read, archived or ArchivedPartition(PARTITION), start)


def restored(found: PartitionPlan) -> list[tuple[int, int]]:
    return [(each.segment.offsets.start, each.segment.offsets.end) for each in found.restored]


def owned(found: PartitionPlan) -> list[tuple[int, int]]:
    coverage = Coverage(tuple(each.segment for each in found.restored), found.lineage)
    return [(piece.offsets.start, piece.offsets.end) for piece in coverage.owned]


def test_segments_of_one_log_give_its_lineage_whatever_their_order() -> None:
    whole = [
        segment(1, 0, 99, (0, 0)),
        segment(2, 100, 199, (0, 100), (2, 150)),
        segment(3, 200, 299, (2, 200), (5, 250)),
    ]
    for order in (whole, whole[::-1]):
        assert lineage_of(order) == Lineage.of((0, 0), (2, 150), (5, 250))
    recovery_plan = plan(*whole)
    assert restored(recovery_plan) == [(0, 99), (100, 199), (200, 299)]
    assert recovery_plan.epoch == 5
    assert not recovery_plan.gaps
    assert not recovery_plan.left_out


def test_the_later_epoch_of_two_branches_wins_and_the_loser_names_it() -> None:
    old = segment(1, 100, 199, (1, 100))
    new = segment(2, 100, 199, (2, 100))
    recovery_plan = plan(segment(3, 0, 99, (1, 0)), old, new)
    (lost,) = recovery_plan.of(Verdict.LOST)
    assert lost.segment == old
    assert "epoch 1 lost offset 100 to epoch 2" in lost.why
    assert new.segment_id in lost.why
    assert recovery_plan.lineage == Lineage.of((1, 0), (2, 100))


def test_an_earlier_epoch_is_cut_where_a_later_one_begins() -> None:
    long, short = segment(1, 100, 249, (1, 100)), segment(2, 150, 199, (2, 150))
    recovery_plan = plan(segment(3, 0, 99, (1, 0)), long, short)
    assert restored(recovery_plan) == [(0, 99), (100, 249), (150, 199)]
    assert owned(recovery_plan) == [(0, 99), (100, 149), (150, 199)]


def test_a_later_term_s_log_wins_over_a_higher_epoch_of_a_branch_it_never_had() -> None:
    # X led in epoch 6 from 140 on; then Y, who never saw that, led in 7 from 150 on and copied its own log whole.
    of_x = segment(1, 140, 145, (6, 140))
    of_y = [segment(2, 100, 149, (5, 100), term=7), segment(3, 150, 200, (7, 150))]
    recovery_plan = plan(of_x, *of_y, log_start=100)
    assert recovery_plan.lineage == Lineage.of((5, 100), (7, 150))
    assert [each.segment for each in recovery_plan.of(Verdict.LOST)] == [of_x]
    assert not recovery_plan.gaps


def test_a_segment_inside_another_one_is_lost_and_names_it() -> None:
    inside, whole = segment(1, 10, 49, (1, 10)), segment(2, 0, 99, (1, 0))
    (lost,) = plan(inside, whole).of(Verdict.LOST)
    assert lost.segment == inside
    assert whole.segment_id in lost.why


def test_the_later_terms_copy_of_a_range_is_restored() -> None:
    first, again = segment(1, 0, 99, (1, 0), position=5), segment(2, 0, 99, (1, 0), position=9)
    for order in ((first, again), (again, first)):
        assert [each.segment for each in plan(*order).restored] == [again]


def test_partial_overlaps_are_all_restored() -> None:
    recovery_plan = plan(segment(1, 0, 99, (1, 0)), segment(2, 50, 149, (1, 50), (2, 100)))
    assert restored(recovery_plan) == [(0, 99), (50, 149)]
    assert not recovery_plan.left_out


def test_the_archive_s_word_wins_over_overlaps() -> None:
    inside, whole = segment(1, 10, 49, (1, 10)), segment(2, 0, 99, (1, 0))
    finished = {each.segment_id: SegmentState.COPY_SEGMENT_FINISHED for each in (inside, whole)}
    archived = ArchivedPartition(PARTITION, states=finished)
    assert restored(plan(inside, whole, archived=archived)) == [(0, 99), (10, 49)]
    abandoned = ArchivedPartition(PARTITION, states={whole.segment_id: SegmentState.ABANDONED})
    recovery_plan = plan(inside, whole, archived=abandoned)
    assert restored(recovery_plan) == [(10, 49)]
    assert [each.segment for each in recovery_plan.of(Verdict.ABANDONED)] == [whole]


def test_the_archived_leader_s_lineage_goes_on_where_no_segment_reaches() -> None:
    archived = ArchivedPartition(PARTITION, leader=elected(9, (1, 0), (9, 100)))
    recovery_plan = plan(segment(1, 0, 99, (1, 0)), archived=archived)
    assert recovery_plan.lineage == Lineage.of((1, 0), (9, 100))
    assert recovery_plan.epoch == 9


def test_every_gap_is_named_up_to_the_local_start() -> None:
    parts = (segment(1, 20, 99, (1, 20)), segment(2, 150, 199, (1, 150)))
    gaps = [OffsetRange(Offset(start), Offset(end)) for start, end in ((0, 19), (100, 149), (200, 249))]
    assert list(plan(*parts).gaps) == gaps[1:2]
    assert list(plan(*parts, local_start=250).gaps) == gaps[1:]
    assert plan(*parts, local_start=100).gaps == ()  # the local tier has the rest
    # offsets that retention or an order may have passed after the last record of it are no gap
    assert [plan(*parts, local_start=at).unproven for at in (100, 250)] == [(gaps[0],), (gaps[0],)]


def test_a_beginning_that_is_archived_as_readable_is_a_gap_and_not_unproven() -> None:
    lost, kept = segment(1, 0, 19, (1, 0)), segment(2, 20, 99, (1, 20))
    sid, state = lost.segment_id, SegmentState.COPY_SEGMENT_FINISHED
    archived = ArchivedPartition(PARTITION, states={sid: state}, finished={sid: lost})
    recovery_plan = plan(kept, archived=archived)
    assert (recovery_plan.gaps, recovery_plan.unproven) == ((lost.offsets,), ())


def test_a_segment_that_straddles_the_log_start_is_restored() -> None:
    recovery_plan = plan(segment(1, 0, 99, (1, 0)), segment(2, 100, 199, (1, 100)), log_start=150)
    assert restored(recovery_plan) == [(100, 199)]
    assert [each.segment.offsets.start for each in recovery_plan.of(Verdict.UNPROVEN)] == [0]


def test_a_segment_whose_last_record_is_the_log_start_is_restored() -> None:
    recovery_plan = plan(segment(1, 0, 99, (1, 0)), segment(2, 100, 199, (1, 100)), log_start=99)
    assert restored(recovery_plan) == [(0, 99), (100, 199)]


def test_the_log_start_of_a_lost_history_hides_nothing_of_the_current_history() -> None:
    current = [found_at(segment(1, 0, 99, (1, 0)), 0), found_at(segment(2, 100, 199, (1, 100)), 0)]
    lost = segment(3, 200, 299, (1, 200))
    recovery_plan = plan_partition(
        PARTITION, [*current, found_at(lost, 200)], ArchivedPartition(PARTITION), left={lost.segment_id}
    )
    assert (recovery_plan.log_start, restored(recovery_plan)) == (0, [(0, 99), (100, 199)])
    assert [each.segment for each in recovery_plan.of(Verdict.LOST)] == [lost]


def test_a_partition_that_the_custodian_deleted_stays_deleted() -> None:
    recovery_plan = plan(segment(1, 0, 99, (1, 0)), archived=ArchivedPartition(PARTITION, deleted=True))
    assert recovery_plan.refused
    assert recovery_plan.ended
    assert not recovery_plan.missing
    assert not recovery_plan.writes


def test_a_log_that_restarted_is_restored_below_its_old_start() -> None:
    """The manifests of the lost log start at 300, in epochs of their own."""
    lost = [found_at(segment(number, 100 * number, 100 * number + 99, (3, 100 * number)), 300) for number in (3, 4)]
    anew = [found_at(segment(5 + at, 100 * at, 100 * at + 99, (7, 100 * at)), 0) for at in (0, 1)]
    plan = plan_partition(PARTITION, [*lost, *anew], ArchivedPartition(PARTITION))
    assert plan.log_start == 0
    assert [each.segment for each in plan.restored] == [each.segment for each in anew]
    assert not plan.of(Verdict.UNPROVEN)
    archive = ArchivedPartition(PARTITION, leader=elected(3, (3, 0)), log_starts=(log_start_said(300, (3, 0)),))
    assert plan_partition(PARTITION, [*lost, *anew], archive).log_start == 0
    assert plan_partition(PARTITION, lost, archive).log_start == 300


def found_at(each: RemoteSegment, log_start: int) -> FoundSegment:
    return FoundSegment(each, TimestampMs(0), Offset(log_start), "memory", TIER_TOPIC)


def test_a_partition_that_only_the_archive_knows_keeps_its_log_start() -> None:
    archived = ArchivedPartition(PARTITION, leader=elected(3, (3, 0)), log_starts=(log_start_said(500, (3, 0)),))
    (plan_,) = plan_partitions([], {PARTITION: archived}, {})
    assert (plan_.log_start, plan_.epoch, plan_.topic, plan_.writes) == (500, 3, "orders", True)
