"""A key that was written twice, with different values, becomes an `IntegrityHold` that quotes both.

A follower keeps both, compaction would not: so a person looks before anything of the partition is deleted. Every agent
that sees it may say so: the same hold is said again only where it does not stand, whoever said it, and which one is the
same is told by its reason. Accepted facts that contradict each other (`lifecycle.py`) need none: they stop every delete
by themselves, until a person settles them (`tierstate settle`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from ..runtime.listener import HoldReported, Listener
from ..schemas.codec import decode_fact, fact_to_json
from ..state.errors import UnknownOutcome
from ..state.facts import Fact, UnknownFact
from ..state.ids import BrokerId, FactId, TopicIdPartition
from ..state.offsets import TimestampMs
from ..state.partition_view import PartitionView
from ..state.termless_facts import IntegrityHold
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


def holds_to_report(
    view: PartitionView, second_values: Sequence[SecondValue], me: BrokerId, now: TimestampMs
) -> list[IntegrityHold]:
    """Holds for every second value that no standing hold names, without ids. Pure.

    Standing: the same reason. A reason names the key and both positions, so that another value has another one.
    """
    standing = {hold.reason for hold in view.holds}
    found: dict[str, tuple[str, str]] = {}
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


class IntegrityHolds:
    """Reports what this agent sees, once. Thread-safe for different partitions.

    A second value is forgotten once its hold stands, so a hold that a person released stays released.
    """

    def __init__(self, seat: Seat, listener: Listener) -> None:
        self._seat, self._listener = seat, listener

    def steps(self, partition: TopicIdPartition, topic: str = "") -> Act[int]:
        """Look once; the number of holds reported. Raises UnknownOutcome, ViewBehind."""
        seat, reported = self._seat, 0
        seconds = seat.view.second_values(partition)
        if not seconds:
            return 0
        for hold in holds_to_report(seat.view.partition(partition), seconds, seat.broker_id, seat.time.now_ms()):
            reported += yield from report_hold(seat, hold, self._listener, topic)
        for second in seconds:
            seat.view.forget_second_value(partition, second.key)
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
