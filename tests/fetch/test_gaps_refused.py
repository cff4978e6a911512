"""No gap is accepted while any part of it may still be brought back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fetch.two_tiers import Golden
from tests.later_release import later_kind
from tierstate.app.operating.gap_acceptance import Gaps, require_gone
from tierstate.state.errors import InvalidRequest
from tierstate.state.object_keys import ObjectKeys, ObjectKind, object_key
from tierstate.state.offsets import Offset, OffsetRange
from tierstate.storage.segment.writer import delete_segment

Make = Callable[..., Golden]


def forget(golden: Golden, number: int) -> OffsetRange:
    """Erase the facts of a segment, as if they had been lost; its objects stay. Return its offsets."""
    segment = golden.segments[number]
    for live in golden.tiers.view.facts(golden.tiers.partition):
        if segment.segment_id in live.key:
            golden.tiers.topic.append(0, live.key, None)
    golden.tiers.view.require_fresh(0, 0)
    golden.local.local_start = golden.folder.bases[-1]
    return segment.offsets


def require(golden: Golden, offsets: OffsetRange) -> None:
    view, bounds = golden.tiers.view.partition(golden.tiers.partition), golden.local.bounds("t", golden.tiers.partition)
    missing = tuple(view.open_gaps(OffsetRange(Offset(0), Offset(bounds.local_start - 1))))
    require_gone(Gaps(view, bounds, missing), offsets, golden.tiers.store, ObjectKeys())


def test_objects_that_no_fact_names_are_not_lost(golden_log: Make) -> None:
    golden = golden_log()
    offsets = forget(golden, 1)
    with pytest.raises(InvalidRequest, match="the bucket has"):
        require(golden, offsets)
    delete_segment(golden.tiers.store, golden.segments[1])
    require(golden, offsets)


def test_offsets_that_a_tier_has_are_not_lost(golden_log: Make) -> None:
    golden = golden_log()
    offsets = forget(golden, 1)
    delete_segment(golden.tiers.store, golden.segments[1])
    for wider in (
        OffsetRange(Offset(offsets.start - 1), offsets.end),
        OffsetRange(offsets.start, Offset(offsets.end + 1)),
    ):
        with pytest.raises(InvalidRequest, match="not all of these offsets are missing"):
            require(golden, wider)


@pytest.mark.parametrize("kind", ObjectKind)
def test_a_lost_object_is_no_gap_and_the_refusal_says_what_to_do(golden_log: Make, kind: ObjectKind) -> None:
    golden = golden_log()
    segment = golden.segments[1]
    golden.local.local_start = golden.folder.bases[-1]
    key = object_key(segment.object_key, kind)
    golden.tiers.store.delete(key)
    with pytest.raises(InvalidRequest) as refused:
        require(golden, segment.offsets)
    for text in (f"{key} is missing", "restore the object", f"delete-records t:0 --before {segment.offsets.end + 1}"):
        assert text in str(refused.value)


def test_nothing_is_accepted_while_the_partition_is_in_doubt(golden_log: Make) -> None:
    golden = golden_log()
    offsets = forget(golden, 1)
    delete_segment(golden.tiers.store, golden.segments[1])
    golden.tiers.topic.append(0, *later_kind(golden.tiers.partition, 1))
    golden.tiers.view.require_fresh(0, 0)
    with pytest.raises(InvalidRequest, match="degraded"):
        require(golden, offsets)
