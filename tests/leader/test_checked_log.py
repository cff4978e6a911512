"""The log on its way to the store: every byte of it in whole batches, or an error that names the place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import google_crc32c
import pytest

from tests.log.batches import GZIP, Batch, record
from tierstate.leader.checked_log import PIECE_BYTES, CheckedLog
from tierstate.log.batch import TRANSACTIONAL, iter_batches
from tierstate.log.local_log import LogDirs
from tierstate.state.errors import CorruptData
from tierstate.state.ids import TopicId, TopicIdPartition
from tierstate.state.offsets import Offset, OffsetRange

TOPIC_ID = TopicId.of(b"golden-topic-id!")
CHUNK_BYTES = 100_000


def batch(offset: int, size: int) -> bytes:
    """Return one record of about ``size`` bytes."""
    only = record(0, b"key", bytes([offset % 251]) * size)
    return Batch(offset, [only], time=1_767_225_600_000 + offset).bytes


@contextmanager
def checked(tmp_path: Path, log: bytes, records: int) -> Iterator[CheckedLog]:
    """Open the checked log of a rolled segment with these bytes, from offset 0."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}\n")
    (folder / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    (folder / f"{0:020d}.log").write_bytes(log)
    (folder / f"{records:020d}.log").touch()
    partition = TopicIdPartition(TOPIC_ID, 0)
    with LogDirs([tmp_path]) as dirs:
        with dirs.open_segment(partition, "orders", Offset(0), Offset(records)) as files:
            yield CheckedLog(files, OffsetRange(Offset(0), Offset(records - 1)), CHUNK_BYTES)


def joined(pieces: Iterable[memoryview]) -> bytes:
    """Join the pieces; a piece is only valid until the next one."""
    return b"".join(map(bytes, pieces))


@pytest.mark.parametrize(
    "sizes",
    [
        [10],
        [PIECE_BYTES - 200] * 3,
        [PIECE_BYTES + 200] * 3,
        [100, 3 * PIECE_BYTES, 100, 2 * PIECE_BYTES, 50],
        [70_000] * 60,
        [300] * 9000,
    ],
    ids=["one", "almost a piece", "more than a piece", "huge among small", "even", "many"],
)
def test_batches_of_any_size_come_whole_and_in_order(tmp_path: Path, sizes: list[int]) -> None:
    batches = [batch(offset, size) for offset, size in enumerate(sizes)]
    log = b"".join(batches)
    with checked(tmp_path, log, len(sizes)) as checked_log:
        pieces = [bytes(piece) for piece in checked_log.pieces()]
        assert b"".join(pieces) == log
        for piece in pieces:
            assert sum(each.size_bytes for each in iter_batches(piece, source="piece")) == len(piece)
        assert checked_log.record_count == len(sizes)
        assert checked_log.last_record_offset == len(sizes) - 1
        firsts = checked_log.chunk_first_offsets()
    begins = [sum(map(len, batches[:at])) // CHUNK_BYTES for at in range(len(sizes))] if len(sizes) < 100 else []
    for at, chunk in enumerate(begins):
        assert firsts[chunk] == begins.index(chunk), f"batch {at} begins in chunk {chunk}"


@pytest.mark.parametrize("zeros", [1, 60, 61, 5000, PIECE_BYTES + 5, 3 * PIECE_BYTES])
@pytest.mark.parametrize("more", [b"", batch(1, 100)])
def test_zeros_in_a_rolled_segment_are_corrupt(tmp_path: Path, zeros: int, more: bytes) -> None:
    good = batch(0, 500)
    with checked(tmp_path, good + bytes(zeros) + more, 3) as checked_log:
        with pytest.raises(CorruptData) as raised:
            joined(checked_log.pieces())
        assert raised.value.facts["position"] == len(good)


@pytest.mark.parametrize("size", [100, 2 * PIECE_BYTES])
def test_a_segment_that_ends_inside_a_batch_is_corrupt_at_that_batch(tmp_path: Path, size: int) -> None:
    good, last = batch(0, 500), batch(1, size)
    for length in (1, 11, 12, 60, 61, len(last) // 2, len(last) - 1):
        (tmp_path / str(length)).mkdir()
        with checked(tmp_path / str(length), good + last[:length], 2) as checked_log:
            with pytest.raises(CorruptData) as raised:
                joined(checked_log.pieces())
            assert raised.value.facts["position"] == len(good)


def test_a_batch_that_claims_more_than_the_segment_has_is_found_before_it_is_read(tmp_path: Path) -> None:
    good, liar = batch(0, 500), bytearray(batch(1, 100))
    liar[8:12] = (2**31 - 100).to_bytes(4, "big")
    with checked(tmp_path, good + liar + bytes(5 * PIECE_BYTES), 2) as checked_log:
        with pytest.raises(CorruptData, match="reaches past the end"):
            joined(checked_log.pieces())


@pytest.mark.parametrize("at", [0, 3, 59])
def test_nothing_of_a_piece_with_a_damaged_batch_is_handed_out(tmp_path: Path, at: int) -> None:
    batches = [batch(offset, 70_000) for offset in range(60)]
    log = bytearray(b"".join(batches))
    position = sum(map(len, batches[:at]))
    log[position + 5000] ^= 4
    handed: list[int] = []
    with checked(tmp_path, bytes(log), 60) as checked_log, pytest.raises(CorruptData, match="CRC") as raised:
        handed.extend(map(len, checked_log.pieces()))
    assert raised.value.facts["position"] == position
    assert sum(handed) <= position


def test_a_segment_that_shrinks_while_it_is_read_is_corrupt(tmp_path: Path) -> None:
    log = b"".join(batch(offset, 70_000) for offset in range(60))
    with checked(tmp_path, log, 60) as checked_log:
        pieces = checked_log.pieces()
        taken = len(next(pieces))
        with (tmp_path / "orders-0" / f"{0:020d}.log").open("r+b") as file:
            file.truncate(taken + 100)
        with pytest.raises(CorruptData, match="shorter than it was"):
            joined(pieces)


def test_the_checksum_of_the_pieces_is_the_one_of_the_file(tmp_path: Path) -> None:
    log = b"".join(batch(offset, 900 * (offset % 7)) for offset in range(2000))
    crc = 0
    with checked(tmp_path, log, 2000) as checked_log:
        for piece in checked_log.pieces():
            crc = google_crc32c.extend(crc, bytes(piece))
    assert crc == google_crc32c.value(log)


LIFTED = [record(0, b"k", b"v"), record(5, b"k", b"v")]


@pytest.mark.parametrize("size", [10, 2 * PIECE_BYTES])
@pytest.mark.parametrize(
    ("second", "noted"),
    [
        (Batch(1, LIFTED).bytes, 1),
        (Batch(1, LIFTED, attributes=TRANSACTIONAL, producer=7).bytes, 1),
        (Batch(1, LIFTED, delta=5).bytes, None),
        (Batch(1, [record(1, b"k", b"v"), record(-9, b"k", b"v")]).bytes, None),
        (Batch(1, LIFTED, GZIP).bytes, None),
    ],
    ids=["above", "above in a transaction", "with a gap", "not in order", "packed: a broker checks these"],
)
def test_the_first_batch_that_readers_refuse_is_copied_and_noted(
    second: bytes, noted: int | None, size: int, tmp_path: Path
) -> None:
    log = batch(0, size) + second + batch(7, size) + Batch(8, [record(1, b"k", b"v")]).bytes * (noted is not None)
    with checked(tmp_path, log, 9) as checked_log:
        assert joined(checked_log.pieces()) == log
        assert checked_log.undecodable == noted
