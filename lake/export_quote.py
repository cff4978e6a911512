"""The quote of an export: estimates of its reads, writes and cost, before anything runs.

Requests: reading takes those of `fetch/read_price.py`, and writing one PUT for each part of a file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..fetch.read_price import GET_PRICE, PUT_PRICE, ReadPrice
from ..storage.object_store import DEFAULT_PART_BYTES
from .columns import Columns
from .jobs import Job

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
    quote, reads = Quote(assumed_processes=processes, assumed_log_bytes_a_second=rate), ReadPrice()
    for job in jobs:
        quote.tasks += 1
        reads.add(job.split.parts)
    quote.offsets, quote.local_offsets, quote.gets = reads.offsets, reads.local_offsets, reads.gets
    quote.segments, quote.remote_bytes = len(reads.segments), int(reads.remote_bytes)
    quote.puts = 2 * quote.tasks + -(-int(reads.log_bytes) // DEFAULT_PART_BYTES) + 2
    quote.seconds = round(reads.log_bytes / rate / processes, 1)
    quote.dollars = round(quote.gets * GET_PRICE + quote.puts * PUT_PRICE, 6)
    quote.dollars_a_month = round(reads.log_bytes * STORED_PRICE, 6)
    return quote
