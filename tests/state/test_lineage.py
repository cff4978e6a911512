"""Lineage: Kafka's predicate and its worked cases, an oracle per offset, and composing below the checkpoint."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tierstate.rules.lineages import continued, earlier_lineages
from tierstate.state.epochs import LeaderEpoch, Lineage
from tierstate.state.errors import InvalidRequest
from tierstate.state.lineage import compose, continued_down, is_owned, laid_over, readable_ranges
from tierstate.state.offsets import Offset, OffsetRange

if TYPE_CHECKING:
    from tests.state.conftest import Build

KAFKA = Lineage.of((0, 0), (1, 10), (2, 20), (3, 30), (4, 40), (5, 50), (7, 70))


def parts(build: Build, start: int, end: int, epochs: Lineage, lineage: Lineage) -> list[tuple[int, int]]:
    segment = build.segment(1, build.term(1, 0), start, end, epochs)
    return [(part.start, part.end) for part in readable_ranges(segment, lineage)]


@st.composite
def lineages(draw: st.DrawFn, least: int = 0) -> Lineage:
    epochs = sorted(draw(st.sets(st.integers(0, 6), min_size=least, max_size=4)))
    starts = sorted(draw(st.lists(st.integers(0, 30), min_size=len(epochs), max_size=len(epochs))))
    return Lineage.of(*zip(epochs, starts, strict=True))


@st.composite
def stretches(draw: st.DrawFn) -> tuple[int, int, Lineage]:
    """Draw a segment's range and its epochs, the first re-based to its start as the copier does."""
    start = draw(st.integers(0, 30))
    end = start + draw(st.integers(0, 20))
    whole = draw(lineages(least=1))
    inside = whole.within(OffsetRange(Offset(start), Offset(end)))
    return start, end, inside if inside.entries else Lineage.of((whole.entries[0].epoch, start))


def kafka_says_within(start: int, end: int, segment: Lineage, lineage: Lineage) -> bool:
    """Apply `RemoteLogManager.isRemoteSegmentWithinLeaderEpochs`, rules 1 to 6, to filtered epochs (no empty ones)."""
    ours = [(e.epoch, e.start_offset) for e in lineage.entries]
    ours = [each for at, each in enumerate(ours) if at + 1 == len(ours) or ours[at + 1][1] > each[1]]
    theirs = [(e.epoch, e.start_offset) for e in segment.entries]
    theirs = [each for at, each in enumerate(theirs) if at + 1 == len(theirs) or theirs[at + 1][1] > each[1]]
    if not ours:
        return False
    by_epoch, last = dict(ours), theirs[-1][0]
    if not ours[0][0] <= last <= ours[-1][0]:
        return False
    later_epochs = [each for each in theirs if each[0] >= ours[0][0]]
    for at, (epoch, begins) in enumerate(later_epochs):
        if epoch not in by_epoch:
            return False
        if at == 0 and epoch != ours[0][0] and begins < by_epoch[epoch]:
            return False
        following = next((each for each in ours if each[0] > epoch), None)
        if epoch == last:
            return following is None or end <= following[1] - 1
        if following != later_epochs[at + 1]:
            return False
    return True


@pytest.mark.parametrize(
    ("start", "end", "epochs", "expected"),
    [
        (15, 35, Lineage.of((1, 15), (2, 20), (3, 30)), [(15, 35)]),
        (0, 89, KAFKA, [(0, 89)]),
        (15, 25, Lineage.of((1, 15), (2, 21)), [(15, 19), (21, 25)]),  # 20 is epoch 2 to the log, 1 to the segment
        (5, 25, Lineage.of((1, 5), (2, 20)), [(10, 25)]),  # epoch 1 begins at 10
        (15, 45, Lineage.of((1, 15), (2, 20), (3, 30)), [(15, 39)]),  # epoch 3 ended at 39
        (55, 85, Lineage.of((5, 55), (6, 60), (7, 70)), [(55, 59), (70, 85)]),  # epoch 6 is foreign
        (15, 35, Lineage.of((8, 15)), []),
        (80, 99, Lineage.of((7, 80)), [(80, 99)]),  # the last epoch has no end
    ],
)
def test_kafkas_cases(start: int, end: int, epochs: Lineage, expected: list[tuple[int, int]], build: Build) -> None:
    assert parts(build, start, end, epochs, KAFKA) == expected
    assert kafka_says_within(start, end, epochs, KAFKA) == (expected == [(start, end)])


def test_kafkas_overlapping_segments_are_both_in_lineage(build: Build) -> None:
    lineage = Lineage.of((5, 10), (7, 15), (9, 100))
    assert parts(build, 10, 50, Lineage.of((5, 10), (7, 15)), lineage) == [(10, 50)]
    assert parts(build, 14, 150, Lineage.of((5, 14), (7, 15), (9, 100)), lineage) == [(14, 150)]


def test_offsets_that_a_segment_gives_no_epoch_are_not_readable(build: Build) -> None:
    assert parts(build, 5, 50, Lineage.of((5, 10), (7, 15)), Lineage.of((5, 0), (7, 15))) == [(10, 50)]


def test_the_first_epoch_is_trusted_below_its_start_because_the_log_start_moved(build: Build) -> None:
    lineage = Lineage.of((2, 40), (3, 60))
    assert parts(build, 10, 70, Lineage.of((1, 10), (2, 20), (3, 60)), lineage) == [(20, 70)]
    assert kafka_says_within(10, 70, Lineage.of((1, 10), (2, 20), (3, 60)), lineage)


@given(stretch=stretches(), lineage=lineages())
def test_an_offset_is_readable_where_both_sides_give_it_the_same_epoch(
    stretch: tuple[int, int, Lineage], lineage: Lineage, build: Build
) -> None:
    start, end, epochs = stretch
    readable = parts(build, start, end, epochs, lineage)
    inside = {offset for one, other in readable for offset in range(one, other + 1)}
    first = lineage.entries[0] if lineage.entries else None
    for offset in range(start, end + 1):
        theirs = epochs.epoch_at(offset)
        below_first = first is not None and offset < first.start_offset and theirs == first.epoch
        assert (offset in inside) == (theirs is not None and (theirs == lineage.epoch_at(offset) or below_first))
    assert readable == sorted(readable)
    assert all(one[1] + 1 < other[0] for one, other in pairwise(readable)), "adjacent parts are joined"


@given(stretch=stretches(), lineage=lineages(least=1))
def test_kafka_accepts_exactly_the_segments_that_are_readable_from_the_first_known_epoch_on(
    stretch: tuple[int, int, Lineage], lineage: Lineage, build: Build
) -> None:
    start, end, epochs = stretch
    # Kafka drops empty epochs first; where that changes which epoch is the first, we trust the older one instead.
    if len(lineage.entries) > 1 and lineage.entries[0].start_offset == lineage.entries[1].start_offset:
        return
    epoch_starts = [entry.start_offset for entry in epochs.entries if entry.epoch >= lineage.entries[0].epoch]
    whole = [(max(start, epoch_starts[0]), end)] if epoch_starts else []
    ours = bool(epoch_starts) and parts(build, start, end, epochs, lineage) == whole
    assert kafka_says_within(start, end, epochs, lineage) == ours


@given(lineage=lineages(), offset=st.integers(0, 40), epoch=st.integers(0, 7))
def test_epoch_at_and_owned_by_say_the_same(lineage: Lineage, offset: int, epoch: int) -> None:
    owned = [e.epoch for e in lineage.entries if e.start_offset <= offset]
    assert lineage.epoch_at(offset) == (owned[-1] if owned else None)
    stretch = lineage.owned_by(LeaderEpoch(epoch))
    assert (stretch is None) == (epoch not in [e.epoch for e in lineage.entries])
    if stretch is not None:
        assert (lineage.epoch_at(offset) == epoch) == (
            stretch[0] <= offset and (stretch[1] is None or offset < stretch[1])
        )


def test_within_and_up_to_keep_the_epochs_of_a_range() -> None:
    lineage = Lineage.of((0, 0), (2, 10), (5, 100))
    assert lineage.within(OffsetRange(Offset(50), Offset(149))) == Lineage.of((2, 50), (5, 100))
    assert lineage.within(OffsetRange(Offset(0), Offset(9))) == Lineage.of((0, 0))
    assert lineage.within(OffsetRange(Offset(10), Offset(99))) == Lineage.of((2, 10))
    assert lineage.up_to(Offset(99)) == Lineage.of((0, 0), (2, 10))
    assert lineage.up_to(Offset(100)) == lineage
    assert (lineage.last_epoch, lineage.first_offset) == (5, 0)
    assert (Lineage().last_epoch, Lineage().first_offset) == (None, None)


@pytest.mark.parametrize("pairs", [((1, 0), (1, 5)), ((2, 0), (1, 5)), ((1, 5), (2, 4))])
def test_epochs_that_do_not_increase_are_refused(pairs: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(InvalidRequest):
        Lineage.of(*pairs)


def test_a_truncated_checkpoint_is_continued_by_the_highest_elder_that_agrees() -> None:
    checkpoint = Lineage.of((2, 150), (4, 300))
    stale, agreeing = Lineage.of((0, 0), (1, 10)), Lineage.of((0, 0), (2, 100), (3, 250))
    lower = Lineage.of((0, 0), (2, 50))
    assert compose(checkpoint, [stale, agreeing, lower]) == (Lineage.of((0, 0), (2, 100), (4, 300)), True)


def test_a_branch_that_left_the_epoch_earlier_still_knows_what_came_before_it() -> None:
    """Decision 0016: A's own `LeaderElected` is erased, B's left epoch 1 at 60, and A comes back trimmed to 70."""
    back = Lineage.of((1, 70), (3, 90))
    branch = Lineage.of((0, 0), (1, 50), (2, 60))
    assert compose(back, [branch]) == (Lineage.of((0, 0), (1, 50), (3, 90)), True)


def test_an_elder_without_the_epoch_does_not_continue_a_checkpoint() -> None:
    checkpoint = Lineage.of((2, 150), (4, 300))
    assert compose(checkpoint, [Lineage.of((0, 0), (1, 100), (3, 150))]) == (checkpoint, False)
    assert compose(checkpoint, [Lineage.of((2, 200), (3, 250))]) == (checkpoint, False)


def test_a_checkpoint_that_begins_at_zero_needs_no_elder() -> None:
    checkpoint = Lineage.of((3, 0), (4, 300))
    assert compose(checkpoint, []) == (checkpoint, True)
    assert compose(checkpoint, [Lineage.of((1, 0))]) == (checkpoint, True)
    assert compose(Lineage.of((3, 7)), []) == (Lineage.of((3, 7)), False)
    assert compose(Lineage(), [checkpoint]) == (Lineage(), True)


@given(whole=lineages(least=1), cut=st.integers(0, 30))
def test_composing_undoes_what_delete_records_did_to_the_checkpoint(whole: Lineage, cut: int) -> None:
    first = whole.entries[0]
    cut = max(cut, first.start_offset)
    kept = [e for e in whole.entries if e.start_offset > cut]
    owner = whole.epoch_at(cut)
    truncated = Lineage.of((owner or 0, cut), *[(e.epoch, e.start_offset) for e in kept])
    assert compose(truncated, [whole]) == (whole, True)


def test_remote_offsets_in_epochs_older_than_the_lineage_are_unknown(build: Build) -> None:
    old = build.term(1, 0)
    epochs = Lineage.of((1, 0), (5, 50))
    copied = [build.started(1, 1, old), build.finished(2, 1, old, epochs=epochs)]

    def unknown(lineage: Lineage, log_start: int = 0) -> bool:
        term = build.term(6, 3)
        leader = build.leader(3, 6, lineage=lineage)
        return build.view(*copied, leader, build.log_start(4, term, log_start, lineage=lineage)).lineage_unknown

    assert unknown(Lineage.of((5, 80), (6, 100)))  # 0..49 have epoch 1, of an unknown branch
    assert unknown(Lineage.of((6, 100)))
    assert not unknown(Lineage.of((5, 80), (6, 100)), log_start=50)
    assert not unknown(Lineage.of((1, 0), (5, 50), (6, 100)))
    assert not unknown(Lineage.of((6, 0)))  # the log restarts at 0: the copy is from another branch, not unknown
    assert not unknown(Lineage.of((6, 80)), log_start=90)  # everything below the lineage is below the log start too
    assert unknown(Lineage.of((6, 80)), log_start=79)
    late = [build.started(1, 1, old, 100, 149), build.finished(2, 1, old, 100, 149, Lineage.of((1, 100)))]
    assert not build.view(*late, build.leader(3, 6, lineage=Lineage.of((6, 80)))).lineage_unknown
    assert unknown(Lineage())
    assert not build.view(build.leader(0, 1, lineage=Lineage())).lineage_unknown


@given(log=lineages(least=1), cut=st.integers(0, 40), down=st.integers(0, 40))
def test_a_checkpoint_is_continued_down_to_the_log_start_by_the_epochs_of_the_batches(
    log: Lineage, cut: int, down: int
) -> None:
    def epoch_of(offset: int) -> LeaderEpoch:
        epoch = log.epoch_at(offset)
        return LeaderEpoch(-1) if epoch is None else epoch

    checkpoint = log.within(OffsetRange(Offset(cut), Offset(100)))  # as Kafka's after DeleteRecords below `cut`
    start = Offset(max(0, cut - down))
    continued = continued_down(checkpoint, start, epoch_of)
    if epoch_of(start) < 0:
        assert continued == checkpoint, "a batch without an epoch is in no lineage"
        return
    assert [continued.epoch_at(offset) for offset in range(60)] == [
        None if offset < start else log.epoch_at(offset) for offset in range(60)
    ]
    assert continued.first_offset == start


def test_a_batch_with_a_later_epoch_than_the_checkpoints_first_continues_nothing() -> None:
    checkpoint = Lineage.of((2, 10), (3, 20))
    assert continued_down(checkpoint, Offset(5), lambda offset: LeaderEpoch(3)) == checkpoint
    assert continued_down(Lineage(), Offset(5), lambda offset: LeaderEpoch(0)) == Lineage()


@given(log=lineages(least=1), cut=st.integers(0, 40), down=st.integers(0, 40))
def test_a_composed_lineage_changes_only_where_the_log_begins_below_its_checkpoint(
    log: Lineage, cut: int, down: int
) -> None:
    assume(len({entry.start_offset for entry in log.entries}) == len(log.entries))  # else an epoch has no record
    checkpoint = log.within(OffsetRange(Offset(cut), Offset(100)))
    composed, _ = compose(checkpoint, [log])
    shown = log.within(OffsetRange(Offset(max(0, cut - down)), Offset(100)))
    assert laid_over(composed, checkpoint) == composed
    assert laid_over(composed, shown) == composed, "the log shows what the facts have"
    assert laid_over(checkpoint, shown) == shown


def test_a_log_that_begins_in_an_epoch_without_a_term_keeps_the_past_of_its_checkpoint(build: Build) -> None:
    old = build.term(1, 0)
    copied = [build.started(1, 1, old), build.finished(2, 1, old, epochs=Lineage.of((1, 0)))]
    view = build.view(*copied, build.leader(0, 1, lineage=Lineage.of((1, 0), (3, 160))))
    checkpoint, log = Lineage.of((3, 160), (4, 180)), Lineage.of((2, 155), (3, 160), (4, 180))
    earlier = earlier_lineages(view, checkpoint)
    assert view.cannot_place(compose(log, earlier)[0]), "no term began in epoch 2"
    whole = Lineage.of((1, 0), (2, 155), (3, 160), (4, 180))
    assert continued(view, checkpoint, log, earlier) == whole


def test_an_offset_is_owned_where_a_segment_with_its_epoch_would_be_readable() -> None:
    lineage = Lineage.of((2, 10), (3, 20))
    owned = [
        (offset, epoch)
        for offset in (5, 10, 19, 20)
        for epoch in (1, 2, 3)
        if is_owned(Offset(offset), LeaderEpoch(epoch), lineage)
    ]
    assert owned == [(5, 2), (10, 2), (19, 2), (20, 3)]
