"""The spool takes complete batches that follow each other, and keeps those before one that it refuses."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.log.batches import marker, plain_batch
from tierstate.log.batch import TRANSACTIONAL
from tierstate.log.transaction_index import OpenBefore
from tierstate.state.epochs import LeaderEpoch
from tierstate.state.errors import CorruptData, NotTiered
from tierstate.state.offsets import Offset
from tierstate.tail.spool import NO_EPOCH, Spool

FIRST, SECOND, THIRD = plain_batch(10), plain_batch(13), plain_batch(16)


def begun(folder: Path, offset: int = 10) -> Spool:
    spool = Spool(folder)
    spool.begin(Offset(offset), NO_EPOCH, OpenBefore({}, True), Offset(offset))
    return spool


def held(spool: Spool) -> bytes:
    return b"".join(piece.path.read_bytes() for piece in spool.pieces if piece.size_bytes)


@pytest.mark.parametrize("cut", [1, 30, len(SECOND) - 1])
def test_a_batch_that_a_fetch_cuts_off_is_left_for_the_next_one(tmp_path: Path, cut: int) -> None:
    spool = begun(tmp_path)
    assert spool.append(FIRST + SECOND[:cut], 0.0) == len(FIRST)
    assert spool.active.next_base == 13
    assert spool.append(SECOND, 0.0) == len(SECOND)
    assert held(spool) == FIRST + SECOND


def test_nothing_complete_is_an_error_and_not_the_end_of_the_log(tmp_path: Path) -> None:
    spool = begun(tmp_path)
    for length in (9, 60, len(FIRST) - 1):
        with pytest.raises(CorruptData, match="no complete batch"):
            spool.append(FIRST[:length], 0.0)
    assert spool.append(b"", 0.0) == 0


def test_a_first_batch_that_begins_below_is_taken_whole(tmp_path: Path) -> None:
    spool = begun(tmp_path, 11)
    spool.append(FIRST, 0.0)
    assert (spool.active.base, spool.active.next_base) == (10, 13)


@pytest.mark.parametrize("damaged", [SECOND[:-1] + b"\xff", FIRST], ids=["another CRC", "offsets that do not follow"])
def test_batches_before_a_damaged_one_stay(tmp_path: Path, damaged: bytes) -> None:
    spool = begun(tmp_path)
    with pytest.raises(CorruptData):
        spool.append(FIRST + damaged + THIRD, 0.0)
    assert held(spool) == FIRST
    assert spool.append(SECOND, 0.0) == len(SECOND)


def old_message(size: int) -> bytes:
    return struct.pack(">qiIb", 13, size, 0, 1) + bytes(size - 5)


def test_batches_before_a_message_of_an_older_format_stay(tmp_path: Path) -> None:
    spool = begun(tmp_path)
    with pytest.raises(NotTiered, match="older than v2"):
        spool.append(FIRST + old_message(80), 0.0)
    assert held(spool) == FIRST


def test_a_message_of_an_older_format_is_named_also_if_it_is_shorter_than_a_header(tmp_path: Path) -> None:
    spool = begun(tmp_path)
    spool.append(FIRST, 0.0)
    with pytest.raises(NotTiered, match="older than v2"):
        spool.append(old_message(22), 0.0)


def test_open_transactions_are_known_to_the_next_process_by_offset_and_epoch(tmp_path: Path) -> None:
    spool = begun(tmp_path)
    spool.append(plain_batch(10, attributes=TRANSACTIONAL, producer=7, epoch=4), 0.0)
    spool.roll()
    spool.append(marker(13, 7, 0, epoch=4), 0.0)
    spool.roll()
    later = Spool(tmp_path)
    before = later.kept_before(Offset(13), LeaderEpoch(4))
    assert before.complete
    assert before.transactions == {7: 10}
    assert later.kept_before(Offset(14), LeaderEpoch(4)).transactions == {}
    assert not later.kept_before(Offset(13), LeaderEpoch(5)).complete, "another log has this offset in another epoch"
    assert not list(tmp_path.glob("*.log")), "data of an earlier process is removed"
