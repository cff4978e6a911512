"""The progress of a call that searches for records, and the reason why the search ended.

A scan ends when it has found as many records as requested, has searched ``gateway.scan_bytes``, or for another reason
of `ScanEnd`. It answers with the records found, often none, and ``X-Next-Offset`` is the offset to continue at.
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
    """The scan of one call. ``budget``: bytes of unpacked batches; a scan exceeds it by at most 1 MiB or one batch."""

    def __init__(self, record_filter: RecordFilter, budget: int) -> None:
        self.record_filter, self.budget = record_filter, budget
        self.records = self.bytes = 0
        self.stopped: ScanEnd | None = None

    def looked(self, records: int, size: int) -> None:
        """Count searched bytes; the decoder calls this. ``records`` is ignored: the blocks' reader counts them."""
        self.bytes += size
        if self.bytes >= self.budget:
            self.stop(ScanEnd.BUDGET)

    def stop(self, why: ScanEnd) -> None:
        """Stop for this reason. The first reason is kept, except that any later reason replaces BUDGET."""
        if self.stopped in (None, ScanEnd.BUDGET):
            self.stopped = why
