"""DeleteRecords to one named broker: the only request of tierstate that makes a broker drop data.

The request has no leader epoch and no topic id, and any leader that receives it executes it. So it is sent once, to one
broker, with a short deadline, and is never routed to the current leader (leader.md, "Trim the local tier").
"""

from __future__ import annotations

from typing import Any

from ..state.errors import Fenced, InvalidRequest, OffsetOutOfRange
from ..state.ids import BrokerId
from ..state.offsets import Offset
from .bounds import read_bounds
from .error_codes import OFFSET_OUT_OF_RANGE, LeaderMoved, error_of
from .raw import RawClient

LONGEST_SECONDS = 5.0


def delete_records_on(
    raw: RawClient, broker: BrokerId, topic: str, partition: int, before: Offset, timeout: float = LONGEST_SECONDS
) -> Offset:
    """Delete records below ``before`` on ``broker``, and return the low watermark over its replicas.

    Raises Fenced if this broker does not lead, OffsetOutOfRange if ``before`` is past the high watermark, and NotTiered
    if the topic does not allow it: nothing was deleted. Raises BrokerUnavailable if the request was not sent or the
    broker failed. Raises TimedOut if records may be deleted, now or later: then read the bounds.
    """
    if before < 0:  # -1 would mean "everything up to the high watermark"
        raise InvalidRequest("DeleteRecords needs an offset", before=before)
    if not 0 < timeout <= LONGEST_SECONDS:
        raise InvalidRequest("DeleteRecords must end soon", timeout=timeout, longest=LONGEST_SECONDS)
    code, low_watermark = raw.delete_records(broker, topic, partition, before, timeout)
    facts: dict[str, Any] = {"topic": topic, "partition": partition, "broker": broker, "before": before}
    if code == OFFSET_OUT_OF_RANGE:
        bounds = read_bounds(raw, broker, topic, partition)
        valid = {"valid_start": bounds.local_start, "valid_end": bounds.high_watermark}
        raise OffsetOutOfRange("DeleteRecords past the high watermark", **valid, **facts)
    error = error_of(code, **facts)
    if isinstance(error, LeaderMoved):
        raise Fenced("this broker does not lead the partition: nothing was deleted", **facts) from error
    if error is not None:
        raise error
    return low_watermark
