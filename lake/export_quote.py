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


@dataclass(slots=True)
class Quote:
    """``remote_bytes``: bytes as stored. ``local_offsets``: offsets that are read from brokers; their size is unknown.

    ``seconds``: about, for remote records, with the assumed number of processes at the assumed speed each. ``dollars``:
    the price of the requests. ``dollars_a_month``: the price of storing files as large as the log.
    """

    tasks: int = 0
    offsets: int = 0
    segments: int = 0
    remote_bytes: int = 0
    local_offsets: int = 0
    gets: int = 0
    puts: int = 0
    seconds: float = 0.0
    assumed_processes: int = 1
    assumed_log_bytes_a_second: int = LOG_BYTES_A_SECOND
    dollars: float = 0.0
    dollars_a_month: float = 0.0


def quote(jobs: Iterable[Job], columns: Columns, processes: int) -> Quote:
    """Return the quote of these tasks, if this number of processes does them."""
    rate = LOG_BYTES_A_SECOND // max([1, *(SLOWER.get(form.format, 1) for form in columns.forms.values())])
    quote = Quote(assumed_processes=processes, assumed_log_bytes_a_second=rate)
    remote, log, segments = 0.0, 0.0, set()
    for job in jobs:
        quote.tasks += 1
        for part in job.split.parts:
            quote.offsets += len(part.offsets)
            if part.segment is None:
                quote.local_offsets += len(part.offsets)
                continue
            share = len(part.offsets) / len(part.segment.offsets)
            segments.add(part.segment.segment_id)
            stored = part.segment.log_object_bytes * share
            remote += stored
            log += part.segment.log_bytes * share
            quote.gets += 2 + -(-int(stored) // WINDOW_BYTES)
    quote.segments, quote.remote_bytes = len(segments), int(remote)
    quote.puts = 2 * quote.tasks + -(-int(log) // DEFAULT_PART_BYTES) + 2
    quote.seconds = round(log / rate / processes, 1)
    quote.dollars = round(quote.gets * GET_PRICE + quote.puts * PUT_PRICE, 6)
    quote.dollars_a_month = round(log * STORED_PRICE, 6)
    return quote
