"""The quote of an export: estimates of its reads, writes and cost, before anything runs.

Requests: an object store needs one GET for each window of a segment's chunks, and two to open the segment. It needs one
PUT for each part of a file. Prices are those of S3 Standard in us-east-1 as Amazon lists them. Other stores differ, and
transfer out of a region costs more than all of these.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..storage.object_store import DEFAULT_PART_BYTES
from ..storage.segment.log_chunks import WINDOW_BYTES
from .columns import Columns
from .jobs import Job

GET_PRICE, PUT_PRICE = 0.4e-6, 5e-6
"""US dollars per request."""
STORED_PRICE = 0.023 / 2**30
"""US dollars per byte and month."""
LOG_BYTES_A_SECOND = 60 * 2**20
"""The assumed speed of one process, which the quote shows. It is for decoding and encoding records of 120 B to 1 KB
that compress well, from a nearby store (docs/benchmarks.md). The speed is not measured.
"""
SLOWER = {"json": 2, "avro": 10}
"""The factor by which an export is slower if keys or values become columns of a format."""


@dataclass(frozen=True, slots=True)
class Quote:
    """``remote_bytes``: bytes as stored. ``local_offsets``: offsets that are read from brokers; their size is unknown.

    ``seconds``: about, for remote records, with the assumed number of processes at the assumed speed each. ``dollars``:
    the price of the requests. ``dollars_a_month``: the price of storing files as large as the log.
    """

    tasks: int
    offsets: int
    segments: int
    remote_bytes: int
    local_offsets: int
    gets: int
    puts: int
    seconds: float
    assumed_processes: int
    assumed_log_bytes_a_second: int
    dollars: float
    dollars_a_month: float


def quote(jobs: Iterable[Job], columns: Columns, processes: int) -> Quote:
    """Return the quote of these tasks, if this number of processes does them."""
    rate = LOG_BYTES_A_SECOND // max([1, *(SLOWER.get(form.format, 1) for form in columns.forms.values())])
    tasks = offsets = local = gets = 0
    remote = log = 0.0
    segments = set()
    for job in jobs:
        tasks += 1
        for part in job.split.parts:
            offsets += len(part.offsets)
            if part.segment is None:
                local += len(part.offsets)
                continue
            share = len(part.offsets) / len(part.segment.offsets)
            segments.add(part.segment.segment_id)
            stored = part.segment.log_object_bytes * share
            remote += stored
            log += part.segment.log_bytes * share
            gets += 2 + -(-int(stored) // WINDOW_BYTES)
    puts = 2 * tasks + -(-int(log) // DEFAULT_PART_BYTES) + 2
    return Quote(
        tasks,
        offsets,
        len(segments),
        int(remote),
        local,
        gets,
        puts,
        round(log / rate / processes, 1),
        processes,
        rate,
        round(gets * GET_PRICE + puts * PUT_PRICE, 6),
        round(log * STORED_PRICE, 6),
    )
