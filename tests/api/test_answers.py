"""The bytes of an answer: across both tiers where records are counted, compressed on request, and long."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from typing import Any

import pytest

from tests.api.decoded import decoded
from tests.api.gateways import RECORDS, Call, MemoryReader, asgi_call
from tierstate.api.app import create_app
from tierstate.api.media import ARROW, BATCHES, JSON, KAFKA_BINARY, NDJSON, PARQUET, Coding, coder_of
from tierstate.api.service import FetchService
from tierstate.fetch.piece import Fetched
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.gateway_settings import Gateway
from tierstate.state.errors import StorageUnavailable

DECODED = (NDJSON, KAFKA_BINARY, ARROW, PARQUET)
MIB = 1 << 20


def reader_of(*values: bytes, local_start: int = 0) -> MemoryReader:
    reader = MemoryReader()
    for number, value in enumerate(values):
        reader.append(b"%d" % number, value)
    reader.local_start = local_start
    return reader


def ask_of(reader: MemoryReader, **settings: int) -> tuple[Call, FetchService]:
    service = FetchService(reader, Gateway.model_validate(settings), SystemClock())
    return asgi_call(create_app(service)), service


@pytest.mark.parametrize("media_type", DECODED)
def test_records_asked_for_by_their_number_come_from_both_tiers(media_type: str) -> None:
    ask, service = ask_of(reader_of(*[b"value"] * 40, local_start=5))
    answer = ask(RECORDS, media_type, offset=0, max_records=20)
    assert [row[0] for row in decoded(answer, 0, committed=True)] == list(range(20))
    assert (answer.headers["x-tier"], answer.headers["x-next-offset"]) == ("remote, local", "20")
    assert service.memory.used == 0


def test_each_line_over_the_seam_names_its_own_tier() -> None:
    ask, _ = ask_of(reader_of(*[b"value"] * 8, local_start=5))
    lines = [json.loads(line) for line in ask(RECORDS, NDJSON, offset=3, max_records=4).content.splitlines()]
    assert [line["tier"] for line in lines] == ["remote", "remote", "local", "local"]


@pytest.mark.parametrize("accept", [JSON, KAFKA_BINARY])
def test_an_array_over_the_seam_is_one_array(accept: str) -> None:
    ask, _ = ask_of(reader_of(*[b"value"] * 8, local_start=5))
    assert [row["offset"] for row in ask(RECORDS, accept, offset=3, max_records=4).json()] == [3, 4, 5, 6]


def test_an_answer_asked_for_by_bytes_ends_where_the_tier_changes() -> None:
    ask, _ = ask_of(reader_of(*[b"value"] * 8, local_start=5))
    answer = ask(RECORDS, NDJSON, offset=3)
    assert (answer.headers["x-tier"], answer.headers["x-next-offset"]) == ("remote", "5")


def test_bytes_bound_what_is_counted_too() -> None:
    reader = reader_of(*[b"v" * 1000] * 20, local_start=2)
    ask, _ = ask_of(reader)
    answer = ask(RECORDS, NDJSON, offset=0, max_records=20, max_bytes=5000)
    assert (
        len(answer.content.splitlines()) == int(answer.headers["x-next-offset"]) == 5
    )  # the last batch may reach beyond


def test_fewer_are_there_than_were_asked_for() -> None:
    ask, _ = ask_of(reader_of(*[b"value"] * 8, local_start=5))
    answer = ask(RECORDS, NDJSON, offset=0, max_records=1000)
    assert (len(answer.content.splitlines()), answer.headers["x-next-offset"]) == (8, "8")


def test_an_error_behind_the_seam_leaves_the_records_before_it() -> None:
    reader = reader_of(*[b"value"] * 8, local_start=5)

    def before(offset: int) -> None:
        if offset >= 5:
            raise StorageUnavailable("it is away")

    reader.before = before
    ask, service = ask_of(reader)
    answer = ask(RECORDS, KAFKA_BINARY, offset=3, max_records=4)
    assert ([row["offset"] for row in answer.json()], answer.headers["x-next-offset"]) == ([3, 4], "5")
    assert ask(RECORDS, KAFKA_BINARY, offset=5, max_records=4).status_code == 503
    assert service.memory.used == 0


def test_an_answer_ends_before_a_damaged_batch_and_the_next_call_says_what_is_wrong() -> None:
    reader = reader_of(*[b"value"] * 8, local_start=5)
    reader.batches[6] = reader.batches[6][:-1] + b"?"
    ask, service = ask_of(reader)
    answer = ask(RECORDS, NDJSON, offset=3, max_records=5)
    assert (len(answer.content.splitlines()), answer.headers["x-next-offset"]) == (3, "6")
    answer = ask(RECORDS, NDJSON, offset=6, max_records=5)
    assert (answer.status_code, answer.json()["error"]) == (500, "CorruptData")
    assert service.memory.used == 0


VALUES = [os.urandom(3000).hex().encode() for _ in range(1200)]
"""7 MB."""


@pytest.mark.extended
@pytest.mark.parametrize("coding", ["identity", "gzip", "zstd"])
@pytest.mark.parametrize("media_type", DECODED)
def test_an_answer_longer_than_what_is_made_ready_is_whole(media_type: str, coding: str) -> None:
    ask, service = ask_of(reader_of(*VALUES), memory=48 * MIB)
    answer = ask(RECORDS, media_type, headers={"accept-encoding": coding}, offset=0, max_bytes=16 * MIB)
    assert "content-length" not in answer.headers
    assert answer.headers.get("content-encoding", "identity") == (coding if media_type != PARQUET else "identity")
    rows = decoded(answer, 0, committed=True)
    assert [row[3] for row in rows] == VALUES
    assert service.memory.used == 0


@pytest.mark.extended
@pytest.mark.parametrize("media_type", DECODED)
def test_a_long_answer_is_cut_after_the_last_record_that_was_asked_for(media_type: str) -> None:
    ask, _ = ask_of(reader_of(*VALUES), memory=48 * MIB)
    answer = ask(RECORDS, media_type, offset=1, max_bytes=16 * MIB, max_records=1150)
    assert [row[0] for row in decoded(answer, 1, committed=True)] == list(range(1, 1151))
    assert answer.headers["x-next-offset"] == "1151"


@pytest.mark.extended
@pytest.mark.parametrize("media_type", DECODED)
def test_an_answer_ends_before_what_is_wrong_far_behind(media_type: str) -> None:
    reader = reader_of(*VALUES)
    reader.batches[1190] = reader.batches[1190][:-1] + b"?"
    ask, service = ask_of(reader, memory=48 * MIB)
    answer = ask(RECORDS, media_type, offset=0, max_bytes=16 * MIB)
    assert [row[3] for row in decoded(answer, 0, committed=True)] == VALUES[:1190]
    assert answer.headers["x-next-offset"] == "1190"
    answer = ask(RECORDS, media_type, offset=1190, max_bytes=16 * MIB)
    assert (answer.status_code, answer.json()["error"]) == (500, "CorruptData")
    assert service.memory.used == 0


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ("gzip", "gzip"),
        ("zstd", "zstd"),
        ("gzip, deflate, br, zstd", "zstd"),
        ("gzip;q=1.0, zstd;q=0.5", "gzip"),
        ("gzip;q=0.5, identity", None),
        ("gzip;q=0", None),
        ("br", None),
        ("*", None),
        ("identity", None),
        ("GZIP", "gzip"),
        ("zstd;q=nonsense", None),
    ],
)
def test_the_coding_is_one_that_the_caller_named(accepted: str, coding: str | None) -> None:
    ask, _ = ask_of(reader_of(b"value" * 1000))
    answer = ask(RECORDS, NDJSON, headers={"accept-encoding": accepted}, offset=0)
    assert answer.headers.get("content-encoding") == coding
    assert json.loads(answer.content)["value"] == "value" * 1000
    assert int(answer.headers["content-length"]) < 400 if coding else True


def test_batches_are_never_compressed_again() -> None:
    ask, _ = ask_of(reader_of(b"value" * 1000))
    answer = ask(RECORDS, BATCHES, headers={"accept-encoding": "gzip, zstd"}, offset=0)
    assert "content-encoding" not in answer.headers


def test_a_compressed_answer_can_be_read_as_far_as_it_came() -> None:
    """The compressor holds nothing back until more follows."""
    for coding in Coding:
        coder = coder_of(coding)
        assert coder is not None
        sizes = [len(coder.code(b"a line of text\n" * 10)) for _ in range(3)]
        assert all(sizes), coding
        assert all(later <= first for first, later in pairwise(sizes)), coding


def test_few_records_are_not_fetched_with_all_that_a_call_may_hold() -> None:
    """The gateway then fetches what is missing, up to the requested bytes."""
    sizes: list[int] = []

    class Asked(MemoryReader):
        def fetch(self, topic: str, partition: int, offset: int, *, max_bytes: int, **how: Any) -> Fetched:
            sizes.append(max_bytes)
            return super().fetch(topic, partition, offset, max_bytes=max_bytes, **how)

    reader = Asked()
    for _ in range(40):
        reader.append(None, bytes(30_000))
    ask, service = ask_of(reader)
    for count, first in ((1, 64 * 1024), (40, 64 * 1024), (300, 300 * 1024)):
        sizes.clear()
        rows = decoded(ask(RECORDS, NDJSON, offset=0, max_records=count, max_bytes=10_000_000), 0, committed=True)
        assert (len(rows), sizes[0]) == (min(count, 40), first)
    assert service.memory.used == 0
