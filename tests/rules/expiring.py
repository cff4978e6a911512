"""Views, retentions and orders on which the rules of expiry are tried."""

from __future__ import annotations

from dataclasses import replace

from tests.state.conftest import NOW, Build
from tierstate.rules.expire import AdvanceLogStart, Aged, next_log_start
from tierstate.rules.leases import CLOCK_TOLERANCE_MS
from tierstate.rules.reasons import Why
from tierstate.state.epochs import Lineage
from tierstate.state.facts import (
    DeleteReason,
    IntegrityHold,
    LiveFact,
    LogStartAdvanced,
    OperatorOrder,
    OrderKind,
    ReaderLease,
    SegmentCopyFinished,
    SegmentDeleteStarted,
)
from tierstate.state.ids import BrokerId
from tierstate.state.local_segments import LocalSegment
from tierstate.state.offsets import Offset, OffsetRange, TimestampMs
from tierstate.state.partition_view import PartitionView
from tierstate.state.retention import TopicRetention
from tierstate.state.routing import LocalBounds

build = Build()
TERM = build.term(1, 0)
LINEAGE = Lineage.of((0, 0))
BOUNDS = LocalBounds(Offset(300), Offset(450), Offset(450), None)
LOCAL = (
    LocalSegment(Offset(300), Offset(400), 1000, NOW),
    LocalSegment(Offset(400), Offset(400), 500, NOW),
)
AGES = (9000, 8000, 7000, 6000)
"""Ages of the remote segments 0..99, 100..199, 200..299 and 300..399, each 1000 bytes; in all there are 4500 bytes."""
FOREVER = TopicRetention(-1, -1, -1, -1)
GRACE = 60_000


def finished(position: int, number: int, start: int, end: int, age: int) -> LiveFact:
    segment = build.segment(number, TERM, start, end)
    at = TimestampMs(NOW - age)
    return build.live(position, SegmentCopyFinished(replace(segment, max_timestamp=at, copied_at=at)))


def view_of(*extra: LiveFact, log_start: int | None = 0, segments: tuple[int, ...] = AGES) -> PartitionView:
    facts = [build.leader(0, 1, lineage=LINEAGE)]
    if log_start is not None:
        facts.append(build.log_start(1, TERM, log_start))
    for number, age in enumerate(segments):
        start, end = 100 * number, 100 * number + 99
        facts += [build.started(2 + 2 * number, number, TERM, start, end)]
        facts += [finished(3 + 2 * number, number, start, end, age)]
    return build.view(*facts, *extra)


def moved(position: int, offset: int, reason: str, counter: int = 5) -> LiveFact:
    return build.live(position, LogStartAdvanced(build.partition, Offset(offset), TERM, counter, reason, NOW, LINEAGE))


def order(
    position: int,
    kind: OrderKind,
    before: int | None = None,
    *,
    number: int = 7,
    force: bool = False,
    lineage: Lineage = LINEAGE,
) -> LiveFact:
    offset = None if before is None else Offset(before)
    fact = OperatorOrder(build.partition, build.fact_id(number), kind, offset, force, "ops", NOW, lineage)
    return build.live(position, fact)


def delete_started(
    position: int, number: int, *, age: int = GRACE, reason: DeleteReason = DeleteReason.RETENTION_TIME
) -> LiveFact:
    subject = build.segment(number, TERM, 100 * number, 100 * number + 99)
    return build.live(position, SegmentDeleteStarted(subject, TERM, position, reason, TimestampMs(NOW - age)))


def lease(position: int, start: int, end: int, *, left: int = 1, number: int = 40, holder: str = "spark") -> LiveFact:
    """``left``: milliseconds until no clock can count the lease as live."""
    expires = TimestampMs(NOW - CLOCK_TOLERANCE_MS + left - 1)
    offsets = OffsetRange(Offset(start), Offset(end))
    return build.live(position, ReaderLease(build.partition, build.fact_id(number), offsets, holder, expires))


def moves(
    view: PartitionView,
    retention: TopicRetention = FOREVER,
    bounds: LocalBounds = BOUNDS,
    gone: Aged | None = None,
) -> AdvanceLogStart | Why:
    return next_log_start(view, bounds, LOCAL, retention, NOW, gone)


def keep(ms: int = -1, size: int = -1) -> TopicRetention:
    return TopicRetention(ms, size, -1, -1)


def doubtful() -> dict[str, PartitionView]:
    hold = IntegrityHold(build.partition, build.fact_id(5), BrokerId(2), "two values", "a", "b", NOW)
    going = (delete_started(80, 0), moved(81, 200, "retention-time"))
    young = build.leader(90, 2, lineage=Lineage.of((1, 250)))
    return {
        "none": view_of(*going),
        "held": view_of(*going, build.live(90, hold)),
        "degraded": view_of(*going, build.unknown(90, "log-start/1/0/9")),
        "contradiction": view_of(*going, build.finished(90, 8, TERM, 400, 499)),
        "lineage unknown": view_of(*going, young),
        "no term has written": view_of(going[0], log_start=None),
    }
