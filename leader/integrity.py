"""Contradictions become `IntegrityHold` facts, so that a person looks before anything of the partition is deleted.

Two kinds: accepted facts that contradict each other (`lifecycle.py`), and a key that was written twice with different
values (a follower keeps both, compaction would not). Every agent that sees one may say so: the same hold is said again
only where it does not stand, whoever said it. Which one is the same is told by its reason and by what it quotes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from ..runtime.listener import HoldReported, Listener
from ..schemas.codec import decode_fact, fact_to_json
from ..state.errors import UnknownOutcome
from ..state.facts import Fact, IntegrityHold, UnknownFact
from ..state.ids import BrokerId, FactId, TopicIdPartition
from ..state.offsets import TimestampMs
from ..state.partition_view import PartitionView, SegmentMeaning
from ..state.view import SecondValue
from .act import Act
from .term import Seat
from .termless import say

MAX_QUOTE = 24 * 1024
"""Characters of a quoted fact."""
MAX_QUOTE_BYTES = 28 * 1024
"""The same in UTF-8: two of them and the rest stay below the 64 KiB of a fact."""
NEVER_STANDS = FactId.of(bytes(16))
"""The id of a hold that nobody has reported yet; `report_hold` gives it its own."""


def contradictions_to_report(
    view: PartitionView, second_values: Sequence[SecondValue], me: BrokerId, now: TimestampMs
) -> list[IntegrityHold]:
    """Holds for every contradiction that no standing hold names, without ids. Pure.

    Standing: the same reason. A reason names the keys and positions, so that another contradiction has another one.
    """
    standing = {hold.reason for hold in view.holds}
    found: dict[str, tuple[str, str]] = {}
    for segment in view.segments.values():
        if segment.contradiction is not None:
            found.setdefault(segment.contradiction, _pair(segment))
    for second in second_values:
        reason = _reason(second)
        first = decode_fact(second.key, second.first)
        other = decode_fact(second.key, second.second)
        found.setdefault(reason, (quoted(second.key, first), quoted(second.key, other)))
    return [
        IntegrityHold(view.partition, NEVER_STANDS, me, reason, first, other, now)
        for reason, (first, other) in sorted(found.items())
        if reason not in standing
    ]


class IntegrityWatch:
    """Reports what this agent sees, once. Thread-safe for different partitions.

    A second value is forgotten once its hold stands, so a hold that a person released stays released. A contradiction
    of accepted facts stands as long as they do, and goes on to stop every delete by itself: its hold is not reported
    again by a process that has seen it.
    """

    def __init__(self, seat: Seat, listener: Listener) -> None:
        self._seat, self._listener = seat, listener
        self._seen: dict[TopicIdPartition, set[str]] = {}

    def steps(self, partition: TopicIdPartition, topic: str = "") -> Act[int]:
        """Look once; the number of holds reported. Raises UnknownOutcome, ViewBehind."""
        seat = self._seat
        view, seconds = seat.view.partition(partition), seat.view.second_values(partition)
        if not (view.contradictions or view.holds or seconds):
            return 0
        seen = self._seen.setdefault(partition, set())
        standing = {hold.reason for hold in view.holds}
        for second in seconds:
            if _reason(second) in standing:
                seat.view.forget_second_value(partition, second.key)
        seen |= standing
        reported = 0
        for hold in contradictions_to_report(view, seconds, seat.broker_id, seat.clock.now_ms()):
            if hold.reason not in seen:
                reported += yield from report_hold(seat, hold, self._listener, topic)
                seen.add(hold.reason)
        return reported


def report_hold(seat: Seat, hold: IntegrityHold, listener: Listener, topic: str = "") -> Act[bool]:
    """Say it, by no term; False when it stood already.

    Of an unknown outcome it is looked for in a fresh view: where it does not stand it is said again under a new id by
    whoever looks next. Twice is harmless: a person releases both. Raises UnknownOutcome, ViewBehind.
    """
    yield "append hold"
    seat.view.require_fresh(seat.view.tier_partition(hold.partition), 0)
    if _stands(seat, hold):
        return False
    own = replace(hold, id=FactId.of(seat.ids.uuid()))
    try:
        say(seat.topic, seat.view, hold.partition, own)
    except UnknownOutcome:
        seat.view.require_fresh(seat.view.tier_partition(hold.partition), 0)
        if not _stands(seat, hold):
            raise
    listener(HoldReported(hold.partition, topic, hold.reason))
    return True


def quoted(key: str, fact: Fact | UnknownFact) -> str:
    """A fact with its key as JSON, cut where two of them would not fit into a fact any more."""
    text = json.dumps({"key": key, **fact_to_json(fact)}, ensure_ascii=False, default=str)
    if len(text) <= MAX_QUOTE and len(text.encode()) <= MAX_QUOTE_BYTES:
        return text
    cut = text[:MAX_QUOTE].encode()[:MAX_QUOTE_BYTES].decode(errors="ignore")
    return f"{cut}… ({len(text)} characters)"


def _reason(second: SecondValue) -> str:
    return f"second value of {second.key} at {second.second_position}, the first at {second.first_position}"


def _stands(seat: Seat, hold: IntegrityHold) -> bool:
    return any(each.reason == hold.reason for each in seat.view.partition(hold.partition).holds)


def _pair(segment: SegmentMeaning) -> tuple[str, str]:
    """The two facts that a contradiction names by key and position; empty for one that is not there."""
    named = [live for live in segment.facts if f"{live.key} at {live.position}" in (segment.contradiction or "")]
    texts = [quoted(live.key, live.fact) for live in named[:2]]
    return (texts[0] if texts else "", texts[1] if len(texts) > 1 else "")
