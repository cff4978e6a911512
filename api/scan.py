"""How far a call that looks for records has looked, and what ended it.

A scan goes on until it has found as many records as were asked for, or until it has looked through
``gateway.scan_bytes``: then it answers with what it found, often nothing, and ``X-Next-Offset`` is where to look on.
"""

from __future__ import annotations

from enum import StrEnum

from ..log.record_filter import RecordFilter


class ScanEnd(StrEnum):
    """The values of the header ``X-Scan-Stopped``."""

    END = "end"
    BUDGET = "budget"
    RECORDS = "records"
    BYTES = "bytes"
    TIER = "tier"
    ERROR = "error"


class Scan:
    """One call's. ``budget``: bytes of batches, unpacked; passed by a MiB or one batch at most."""

    def __init__(self, record_filter: RecordFilter, budget: int) -> None:
        self.record_filter, self.budget = record_filter, budget
        self.records = self.bytes = 0
        self.stopped: ScanEnd | None = None

    def looked(self, records: int, size: int) -> None:
        """Told by the decoder, of whole blocks; how many of their records counted, only who reads them knows."""
        self.bytes += size
        if self.bytes >= self.budget:
            self.stop(ScanEnd.BUDGET)

    def stop(self, why: ScanEnd) -> None:
        """The first reason counts, but for a budget that was spent with the last thing asked for."""
        if self.stopped in (None, ScanEnd.BUDGET):
            self.stopped = why
