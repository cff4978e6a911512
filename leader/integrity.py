"""Report a key that was written twice with different values as an `IntegrityHold` that quotes both values.

A follower keeps both values, but compaction keeps only the second. So a person must check them before anything of the
partition is deleted. Every agent that sees both values may report them, unless any agent's hold with the same reason
is in the view. Accepted facts that contradict each other (`lifecycle.py`) need no hold: they stop every delete until a
person resolves them (`tierstate settle`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from ..runtime.listener import HoldReported, Listener
from ..runtime.operation import Operation
from ..schemas.codec import decode_fact, fact_to_json
from ..state.errors import UnknownOutcome
from ..state.facts import Fact, IntegrityHold, UnknownFact
from ..state.ids import BrokerId, FactId, TopicIdPartition
from ..state.offsets import TimestampMs
from ..state.partition_view import PartitionView
from ..state.view import SecondValue
from .term import TermContext, say

MAX_QUOTE = 24 * 1024
"""The greatest number of characters of a quoted fact."""
MAX_QUOTE_BYTES = 28 * 1024
"""The same limit in UTF-8 bytes: two quotes and the rest stay below the 64 KiB of a fact."""
NEVER_STANDS = FactId.of(bytes(16))
"""The id of a hold that is not reported yet; `report_hold` replaces this id by a new one."""


def holds_to_report(
    view: PartitionView, second_values: Sequence[SecondValue], me: BrokerId, now: TimestampMs
) -> list[IntegrityHold]:
    """Return a hold, with id `NEVER_STANDS`, for every second value that no hold in the view names. Pure.

    Holds are compared by reason. A reason names the key and both positions, so each second value has its own reason.
    """
    reasons = {hold.reason for hold in view.holds}
    quotes: dict[str, tuple[str, str]] = {}
    for second in second_values:
        reason = f"second value of {second.key} at {second.second_position}, the first at {second.first_position}"
        first = decode_fact(second.key, second.first)
        other = decode_fact(second.key, second.second)
        quotes.setdefault(reason, (quoted(second.key, first), quoted(second.key, other)))
    return [
        IntegrityHold(view.partition, NEVER_STANDS, me, reason, first, other, now)
        for reason, (first, other) in sorted(quotes.items())
        if reason not in reasons
    ]


def report_second_values(
    context: TermContext, partition: TopicIdPartition, listener: Listener, topic: str = ""
) -> Operation[int]:
    """Report each second value of the partition. Return the number of new holds. Raises UnknownOutcome, ViewBehind.

    A second value is forgotten once its hold is in the view, so it is not reported again after a person's release.
    """
    reported, seconds = 0, context.view.second_values(partition)
    if not seconds:
        return 0
    holds = holds_to_report(context.view.partition(partition), seconds, context.broker_id, context.time.now_ms())
    for hold in holds:
        reported += yield from report_hold(context, hold, listener, topic)
    for second in seconds:
        context.view.forget_second_value(partition, second.key)
    return reported


def report_hold(context: TermContext, hold: IntegrityHold, listener: Listener, topic: str = "") -> Operation[bool]:
    """Append the hold, without a term. Return False if a hold with the same reason was in the view already.

    After an unknown outcome a fresh view is searched for the hold. If the view lacks it, raises UnknownOutcome, and the
    next look of any agent reports it under a new id. Two holds are harmless: a person releases both. Raises ViewBehind.
    """

    def stands() -> bool:
        return any(each.reason == hold.reason for each in context.fresh_view(hold.partition).holds)

    yield "append hold"
    if stands():
        return False
    own = replace(hold, id=FactId.of(context.ids.uuid()))
    try:
        say(context.topic, context.view, hold.partition, own)
    except UnknownOutcome:
        if not stands():
            raise
    listener(HoldReported(hold.partition, topic, hold.reason))
    return True


def quoted(key: str, fact: Fact | UnknownFact) -> str:
    """Return a fact with its key as JSON, cut so that two quotes fit into one fact."""
    text = json.dumps({"key": key, **fact_to_json(fact)}, ensure_ascii=False, default=str)
    if len(text) <= MAX_QUOTE and len(text.encode()) <= MAX_QUOTE_BYTES:
        return text
    cut = text[:MAX_QUOTE].encode()[:MAX_QUOTE_BYTES].decode(errors="ignore")
    return f"{cut}… ({len(text)} characters)"
