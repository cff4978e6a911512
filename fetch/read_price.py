"""The requests that reading planned parts from an object store takes, and their price.

A store needs one GET for each window of a segment's chunks, and two to open the segment. Prices are those of S3
Standard in us-east-1 as Amazon lists them. Other stores differ, and transfer out of a region costs more than all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..state.ids import RemoteSegmentId
from ..storage.segment.log_chunks import WINDOW_BYTES
from .planned_split import PlannedPart

GET_PRICE, PUT_PRICE = 0.4e-6, 5e-6
"""US dollars per request."""


@dataclass(slots=True)
class ReadPrice:
    """``local_offsets``: offsets that are read from brokers; their size is unknown. ``remote_bytes``: as stored.
    ``log_bytes``: of remote parts, as the log has them."""

    offsets: int = 0
    local_offsets: int = 0
    remote_bytes: float = 0.0
    log_bytes: float = 0.0
    gets: int = 0
    segments: set[RemoteSegmentId] = field(default_factory=set)

    def add(self, parts: Iterable[PlannedPart]) -> None:
        for part in parts:
            self.offsets += len(part.offsets)
            if part.segment is None:
                self.local_offsets += len(part.offsets)
                continue
            share = len(part.offsets) / len(part.segment.offsets)
            self.segments.add(part.segment.segment_id)
            stored = part.segment.log_object_bytes * share
            self.remote_bytes += stored
            self.log_bytes += part.segment.log_bytes * share
            self.gets += 2 + -(-int(stored) // WINDOW_BYTES)
