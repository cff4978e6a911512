"""The aborted transactions that touch a segment which Kafka copied.

Kafka writes an aborted transaction into the transaction index of the segment that has its abort marker. So the entries
of a segment's records are in its own index, in those of later segments, or in the broker's local log. Kafka copies only
segments below the last stable offset: each transaction in them is decided, and these ranges never change.

    own index, then those that follow, until an entry's last stable offset is behind the segment
    then, if none was, what the broker lists at the first offset that is not remote

An index may go on behind the offset where an unclean election cut the log. Its entries from there on are those of a log
that no longer exists. So each index counts only up to the last offset that its segment owns in the leader's log.

``TxnIndexEmpty`` in a record means that the segment's own index is empty, not that none of its records is aborted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ..log.transaction_index import parse_transaction_index
from ..state.coverage import Coverage
from ..state.errors import LogGap
from ..state.offsets import Offset
from ..state.routing import LocalBounds
from ..state.segment import AbortedRange, RemoteSegment

IndexOf = Callable[[RemoteSegment], bytes]
"""Returns the transaction index of a segment; empty if there is none."""
Listed = Callable[[Offset], Iterable[tuple[int, Offset]]]
"""Returns producer id and first offset of the aborted transactions in a read_committed answer at an offset."""


def owned_end(segment: RemoteSegment, coverage: Coverage, sure: Offset) -> Offset:
    """Return the last offset that the segment owns below ``sure``, which is `routing.sure_end`."""
    parts = [each for each in coverage.within(segment.offsets) if each.segment.segment_id == segment.segment_id]
    return Offset(min(max((each.offsets.end for each in parts), default=segment.offsets.end), sure - 1))


def aborted_ranges(
    segment: RemoteSegment, coverage: Coverage, sure: Offset, bounds: LocalBounds, index_of: IndexOf, listed: Listed
) -> tuple[AbortedRange, ...]:
    """Return all ranges that touch the segment up to its `owned_end`, in order.

    ``bounds`` are newer than no record of the coverage.
    Raises LogGap if an index that is needed is in no tier, CorruptData, ObjectNotFound, and the errors of ``listed``.
    """
    ranges: list[AbortedRange] = []
    end = owned_end(segment, coverage, sure)
    for each, last in _from(segment, end, coverage, sure):
        if not each.transaction_index_empty:
            for entry in parse_transaction_index(index_of(each), each.object_key):
                if entry.range.last > last:
                    break
                if entry.range.first <= end and entry.range.last >= segment.offsets.start:
                    ranges.append(entry.range)
                if entry.last_stable_offset > end:
                    return _ordered(ranges)
    remote_end = Offset(min(coverage.prefix_end(end) + 1, sure))
    if remote_end < bounds.local_start:
        raise LogGap(
            "the transactions of this segment may be decided in offsets that no tier has",
            start=remote_end,
            end=Offset(bounds.local_start - 1),
            topic=segment.topic,
            partition=segment.partition,
        )
    # a read at the last stable offset lists nothing, not even a transaction from before it that was decided since
    at = remote_end if remote_end < bounds.last_stable_offset else Offset(max(0, remote_end - 1))
    for producer_id, first in listed(at):
        if first <= end:
            ranges.append(AbortedRange(producer_id, first, Offset(max(first, remote_end))))
    return _ordered(ranges)


def _from(
    segment: RemoteSegment, end: Offset, coverage: Coverage, sure: Offset
) -> Iterator[tuple[RemoteSegment, Offset]]:
    """Yield the segment, and those that own the offsets after it without a gap, each with its last offset there."""
    yield segment, end
    position = end + 1
    while position < sure and (owned := coverage.at(position)) is not None:
        last = Offset(min(owned.offsets.end, sure - 1))
        yield owned.segment, last
        position = last + 1


def _ordered(ranges: Iterable[AbortedRange]) -> tuple[AbortedRange, ...]:
    return tuple(sorted(set(ranges), key=lambda each: (each.first, each.producer_id, each.last)))
