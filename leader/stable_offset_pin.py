"""Watch for how long the last stable offset of a partition has not moved, and which open transaction holds it.

The transaction is named for people only, so no operation waits for the name. The broker is asked only after a look that
found nothing to do, and only while an open transaction is why something is not done. The offset must be unchanged for
`NAMED_AFTER_S`, and the last request must be `ASK_EVERY_S` ago. If the broker does not know the request, or refuses it
(it needs READ on the topic), the transaction stays unnamed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..broker.control import OpenTransaction
from ..rules.reasons import Reason
from ..state.errors import TierstateError
from ..state.ids import TopicIdPartition
from ..state.offsets import Offset, TimestampMs, moment
from ..state.routing import LocalBounds
from .status import PartitionStatus, PinnedBy
from .term import TermContext

NAMED_AFTER_S = 5.0
"""Most transactions end earlier; a partition that waits for one is looked at again this soon (`schedule.py`)."""
ASK_EVERY_S = 60.0


@dataclass(slots=True)
class _Pin:
    """``at``: the last stable offset, unchanged since ``seconds`` (monotonic) and ``since``. ``due``: when to ask."""

    at: Offset
    seconds: float
    since: TimestampMs
    due: float
    by: PinnedBy | None = None


class StableOffsetPin:
    """Watches the last stable offset of one partition of topic ``name``. Used by one thread at a time."""

    def __init__(self, context: TermContext, partition: TopicIdPartition, name: str) -> None:
        self._context, self._partition, self._name = context, partition, name
        self._pin: _Pin | None = None

    def pinned_s(self, bounds: LocalBounds) -> float:
        """Return for how many seconds this process has seen the last stable offset unchanged, below the high watermark.
        Returns 0 if the last stable offset is not below it.
        """
        stable, now = bounds.last_stable_offset, self._context.clock.monotonic()
        if stable >= bounds.high_watermark:
            self._pin = None
        elif self._pin is None or self._pin.at != stable:
            self._pin = _Pin(stable, now, self._context.clock.now_ms(), now + NAMED_AFTER_S)
        return now - self._pin.seconds if self._pin else 0.0

    def named(self, status: PartitionStatus) -> PartitionStatus:
        """Return the status with the transaction, if known, in reasons that it causes. Sends no request."""
        by = self._pin.by if self._pin is not None and _matters(status) else None
        if by is None:
            return status.saying(open_transaction=None)
        whose = f"; {_sentence(by)}"
        copied = status.not_copied_reason is Reason.OPEN_TRANSACTION
        trimmed = status.not_trimmed_reason is Reason.OPEN_TRANSACTION
        return replace(
            status,
            open_transaction=by,
            not_copied=f"{status.not_copied}{whose}" if copied else status.not_copied,
            not_trimmed=f"{status.not_trimmed}{whose}" if trimmed else status.not_trimmed,
        )

    def learn(self, shown: PartitionStatus) -> bool:
        """Ask the broker if that is due. Return whether the transaction is known now and ``shown`` lacks it. Never
        raises a tierstate error: without an answer, the known transaction stays.
        """
        pin, now = self._pin, self._context.clock.monotonic()
        if pin is None or now < pin.due or not _matters(shown):
            return False
        pin.due = now + ASK_EVERY_S
        try:
            place, broker = (self._name, self._partition.partition), self._context.log.broker_of(self._partition)
            pin.by = _holder(self._context.broker.open_transactions(*place, broker=broker), pin)
        except TierstateError:
            return False
        return pin.by is not None and shown.open_transaction is None


def _sentence(by: PinnedBy) -> str:
    """Return the description of a transaction for people. Its producer set the record's time."""
    more = f" (and {by.others} more are open)" if by.others else ""
    last = "" if by.last_timestamp is None else f", its producer's last record here is of {moment(by.last_timestamp)}"
    whose = f"it is of producer {by.producer_id}, epoch {by.producer_epoch}, begins at offset {by.start_offset}"
    return f"{whose} and is open since {moment(by.open_since)} at the latest{last}{more}"


def _matters(status: PartitionStatus) -> bool:
    return Reason.OPEN_TRANSACTION in (status.not_copied_reason, status.not_trimmed_reason)


def _holder(transactions: tuple[OpenTransaction, ...], pin: _Pin) -> PinnedBy | None:
    """Return the first transaction; None if it begins above the pin, because then the offset has moved since."""
    if not transactions or transactions[0].start > pin.at:
        return None
    first = transactions[0]
    return PinnedBy(
        first.producer_id, first.producer_epoch, first.start, pin.since, first.last_timestamp, len(transactions) - 1
    )
