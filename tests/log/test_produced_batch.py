"""Batches for a producer have the stored batch's records, byte by byte, and a header that a broker takes."""

from __future__ import annotations

import pytest

from tests.log.batches import GZIP, LZ4, NONE, SNAPPY, TIME, ZSTD, Batch, marker, plain_batch, record
from tierstate.log.batch import TRANSACTIONAL, BatchHeader, iter_batches
from tierstate.log.produced_batch import is_sendable, rewritten, stamped
from tierstate.log.record_parser import parse_records
from tierstate.state.errors import CorruptData

CODECS = (NONE, GZIP, SNAPPY, LZ4, ZSTD)
APPEND_TIME, DELETE_HORIZON = 8, 64


def header(data: bytes) -> BatchHeader:
    (batch,) = iter_batches(data, source="batch")  # it checks the CRC, too
    return batch


@pytest.mark.parametrize("codec", CODECS)
def test_a_stamped_batch_differs_in_its_header_only(codec: int) -> None:
    stored = plain_batch(100, 4, codec, attributes=TRANSACTIONAL, producer=7, epoch=3)
    sent = stamped(stored, 9, 2, 40)
    batch = header(sent)
    assert sent[61:] == stored[61:]
    assert (batch.base_offset, batch.last_offset, batch.attributes) == (0, 3, codec)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (9, 2, 40)
    assert (batch.first_timestamp, batch.max_timestamp) == (
        header(stored).first_timestamp,
        header(stored).max_timestamp,
    )


@pytest.mark.parametrize("codec", CODECS)
def test_a_rewritten_batch_has_the_records_of_the_range_with_their_times_and_headers(codec: int) -> None:
    odd = [(b"\xff\xed\xa0\x80", None), (b"", b"x" * 70_000)]
    records = [record(0, None, b"0"), record(2, b"", None, odd, time=5), record(6, b"k", b"6" * 200_000, time=-3)]
    stored = Batch(10, [*records, record(7, b"k", b"7")], codec, DELETE_HORIZON, delta=7).bytes
    new, offsets = rewritten(stored, header(stored), 11, 17, source="batch")
    assert offsets == [12, 16]
    assert header(new).attributes == codec
    kept = [each for each in parse_records(stored, source="batch") if 11 <= each.offset < 17]
    sent = list(parse_records(stamped(new, 1, 0, 0), source="batch"))
    assert [each._replace(offset=0) for each in sent] == [each._replace(offset=0) for each in kept]
    assert [each.offset for each in sent] == [0, 1]


def test_append_times_become_create_times() -> None:
    stored = Batch(
        0, [record(0, None, b"a", time=3), record(1, None, b"b", time=9)], ZSTD, APPEND_TIME, max_time=TIME + 50
    )
    new, _ = rewritten(stored.bytes, header(stored.bytes), 0, 2, source="batch")
    assert [(each.timestamp, each.timestamp_type) for each in parse_records(new, source="x")] == [(TIME + 50, 0)] * 2


def test_only_dense_batches_with_create_times_are_sent_as_stored() -> None:
    assert is_sendable(header(plain_batch(5, 3, GZIP, attributes=TRANSACTIONAL, producer=1)))
    for data in (
        plain_batch(5, 3, attributes=APPEND_TIME),
        plain_batch(5, 3, attributes=DELETE_HORIZON),
        plain_batch(5, 3, delta=4),
        marker(5, 1, 1),
    ):
        assert not is_sendable(header(data))


def test_records_that_reach_beyond_their_batch_are_corrupt() -> None:
    damaged = Batch(0, [record(0, b"k", b"v")[:-1]]).bytes
    with pytest.raises(CorruptData, match="reaches beyond"):
        rewritten(damaged, header(damaged), 0, 1, source="batch")
