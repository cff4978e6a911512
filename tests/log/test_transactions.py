"""Transactions read from batches are Kafka's own: the index that they make, and the contradictions it may not have."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.log.batches import block_rows as rows
from tests.log.batches import blocks_of, golden_folder, golden_rows, marker, plain_batch
from tierstate.log.batch import TRANSACTIONAL, BatchHeader, iter_batches
from tierstate.log.folder import open_log
from tierstate.log.isolation import AbortFilter
from tierstate.log.transaction_index import (
    ENTRY,
    OpenBefore,
    TransactionIndexCheck,
    format_transaction_index,
    open_before,
)
from tierstate.log.transactions import ABORT, COMMIT, AbortedTransaction, decide
from tierstate.state.errors import CorruptData
from tierstate.state.offsets import Offset
from tierstate.state.segment import AbortedRange

EMPTY = OpenBefore(complete=True)


@dataclass(frozen=True)
class Segment:
    """A real segment: its base offset, log and index, and the transactions that its producer snapshot has open."""

    base: int
    log: bytes
    index: bytes
    before: OpenBefore

    @cached_property
    def of_transactions(self) -> list[BatchHeader]:
        return [batch for batch in iter_batches(self.log, source="log") if batch.is_transactional]

    def check(self, index: bytes | None = None, before: OpenBefore | None = None) -> TransactionIndexCheck:
        index_bytes = self.index if index is None else index
        check = TransactionIndexCheck(index_bytes, Offset(self.base), before or self.before, "index", log="log")
        for batch in self.of_transactions:
            check.add(batch, self.log)
        return check


def checked(log: bytes, index: bytes, base: int = 0, before: OpenBefore = EMPTY) -> TransactionIndexCheck:
    check = TransactionIndexCheck(index, Offset(base), before, "index", log="log")
    for batch in iter_batches(log, source="log"):
        check.add(batch, log)
    return check


def entry(producer: int, first: int, last: int, stable: int | None = None) -> AbortedTransaction:
    return AbortedTransaction(
        AbortedRange(producer, Offset(first), Offset(last)), Offset(last + 1 if stable is None else stable)
    )


def data(base: int, producer: int, count: int = 1) -> bytes:
    return plain_batch(base, count, producer=producer, attributes=TRANSACTIONAL)


def golden(case: str) -> Iterator[Segment]:
    folder = golden_folder(case)
    for base in folder.base_offsets:
        files = [folder.log_path(base).with_suffix(suffix) for suffix in (".log", ".txnindex", ".snapshot")]
        log, index, snapshot = (file.read_bytes() if file.exists() else None for file in files)
        yield Segment(base, log or b"", index or b"", open_before(base, snapshot, "snapshot"))


SEGMENTS = [segment for case in ("transactions", "opentxn") for segment in golden(case)]
WITH_INDEX = [segment for segment in SEGMENTS if segment.index]


def test_the_markers_of_a_real_log_make_the_very_index_that_the_broker_wrote() -> None:
    assert sum(len(segment.index) for segment in SEGMENTS) == ENTRY.size * 63
    for segment in SEGMENTS:
        check = segment.check()
        assert check.opening_complete
        assert check.bytes() == segment.index
        assert check.difference() is None


def test_transactions_open_at_a_segments_end_are_in_the_next_snapshot() -> None:
    for case in ("transactions", "opentxn"):
        for segment, following in pairwise(golden(case)):
            assert segment.check().open == following.before.transactions


@pytest.mark.extended
@pytest.mark.parametrize("segment", WITH_INDEX, ids=lambda segment: str(segment.base))
def test_every_flipped_bit_of_a_real_index_is_found(segment: Segment) -> None:
    for bit in range(8 * len(segment.index)):
        bad = bytearray(segment.index)
        bad[bit // 8] ^= 1 << bit % 8
        check = segment.check(bytes(bad))
        assert check.bytes() == segment.index
        if check.difference() is None:
            # a replica may have written this other value there: all transactions below it are decided
            at = bit // 8 // ENTRY.size * ENTRY.size
            assert bytes(bad[: at + 26]) == segment.index[: at + 26]
            assert bytes(bad[at + 34 :]) == segment.index[at + 34 :]
            last, stable = struct.unpack(">qq", bad[at + 18 : at + 34])
            others = [each for each in segment.of_transactions if last < each.base_offset < stable]
            assert stable > last + 1
            assert len({each.producer_id for each in others if not each.is_control}) < 2


@pytest.mark.extended
@pytest.mark.extended
@pytest.mark.parametrize("segment", WITH_INDEX, ids=lambda segment: str(segment.base))
def test_without_a_producer_snapshot_only_what_lies_below_the_segment_goes_unnoticed(segment: Segment) -> None:
    def hidden(check: TransactionIndexCheck) -> list[int]:
        abort_filter = AbortFilter([each.range for each in check.aborted])
        return [batch.base_offset for batch in segment.of_transactions if abort_filter.hides(batch)]

    good = segment.check(before=OpenBefore())
    assert good.difference() is None
    unnoticed = 0
    for bit in range(8 * len(segment.index)):
        bad = bytearray(segment.index)
        bad[bit // 8] ^= 1 << bit % 8
        check = segment.check(bytes(bad), OpenBefore())
        assert not check.opening_complete
        if check.difference() is None:
            unnoticed += 1
            assert hidden(check) == hidden(good)
    assert unnoticed < 16 * len(segment.index) // ENTRY.size


@pytest.mark.parametrize("segment", WITH_INDEX, ids=lambda segment: str(segment.base))
def test_an_index_that_is_gone_cut_off_reordered_or_too_long_is_found(segment: Segment) -> None:
    size, extra = len(segment.index), entry(77, segment.base, segment.base + 3)
    others = [
        b"",
        *(segment.index[:cut] for cut in range(1, size, 17)),
        segment.index + format_transaction_index([extra]),
        segment.index + segment.index[-ENTRY.size :],
        segment.index[ENTRY.size :] + segment.index[: ENTRY.size],
        bytes(size),
    ]
    for index in others:
        assert segment.check(index).difference() is not None


def test_an_index_where_nothing_was_aborted_is_found() -> None:
    log = data(0, 7) + marker(1, 7, COMMIT)
    assert checked(log, b"").difference() is None
    assert checked(log, format_transaction_index([entry(7, 0, 1)])).difference() is not None


def test_a_marker_without_data_makes_no_entry() -> None:
    log = marker(0, 7, ABORT) + data(1, 8) + marker(2, 7, ABORT) + marker(3, 8, ABORT) + marker(4, 8, ABORT)
    assert checked(log, b"").aborted == [entry(8, 1, 3)]


def test_a_producer_without_transactions_and_one_of_a_higher_epoch_are_no_trouble() -> None:
    log = plain_batch(0, 2, producer=7) + data(2, 8) + plain_batch(3, 1) + data(4, 8) + marker(5, 8, ABORT, epoch=3)
    assert checked(log, b"").aborted == [entry(8, 2, 5)]


def test_the_last_stable_offset_is_where_the_oldest_other_transaction_begins() -> None:
    log = data(0, 1) + data(1, 2) + data(2, 3) + marker(3, 1, ABORT) + marker(4, 3, ABORT) + marker(5, 2, ABORT)
    assert checked(log, b"").aborted == [entry(1, 0, 3, 1), entry(3, 2, 4, 1), entry(2, 1, 5)]


def test_a_replica_that_appended_the_next_transaction_with_the_marker_may_name_its_beginning() -> None:
    """It begins all transactions of a fetch at once before it ends the first."""
    log = data(0, 1) + marker(1, 1, ABORT) + data(2, 1) + plain_batch(3, 2) + data(5, 2) + data(6, 3)
    for stable, agrees in ((2, True), (5, True), (3, False), (4, False), (6, False), (1, False), (7, False)):
        index = format_transaction_index([entry(1, 0, 1, stable)])
        assert (checked(log, index).difference() is None) == agrees, stable


def test_a_beginning_that_only_a_snapshot_knows_is_in_the_entry() -> None:
    log = data(10, 1) + marker(11, 1, ABORT) + marker(12, 2, ABORT)
    before = OpenBefore({1: Offset(3), 2: Offset(5)}, complete=True)
    check = checked(log, b"", 10, before)
    assert check.aborted == [entry(1, 3, 11, 5), entry(2, 5, 12)]
    check_result = checked(log, check.bytes(), 10, OpenBefore())
    assert (check_result.difference(), check_result.aborted) == (None, check.aborted)
    assert checked(log, format_transaction_index([entry(1, 10, 11)]), 10, OpenBefore()).difference() is None


def test_the_first_segment_needs_no_snapshot_and_a_damaged_one_is_none() -> None:
    assert open_before(0, None, "snapshot") == EMPTY
    assert not open_before(10, None, "snapshot").complete
    assert not open_before(10, b"damaged", "snapshot").complete


def test_a_marker_that_cannot_be_read_is_corrupt() -> None:
    log = data(0, 7) + marker(1, 7, ABORT)
    begins, ends = iter_batches(log, source="log")
    check = TransactionIndexCheck(b"", Offset(0), EMPTY, "index", log="log")
    check.add(begins, log)
    with pytest.raises(CorruptData, match=r"cut off.*file=log"):
        check.add(replace(ends, size_bytes=64), log)


@dataclass
class History:
    """A log of many producers and, separately, the state of every offset: aborted by which marker, or not."""

    batches: list[bytes] = field(default_factory=list)
    open: dict[int, list[int]] = field(default_factory=dict)
    aborted: list[AbortedRange] = field(default_factory=list)


@st.composite
def histories(draw: st.DrawFn) -> History:
    history = History()
    steps = st.tuples(st.integers(1, 5), st.sampled_from(["data", "data", "data", "plain", "abort", "abort", "commit"]))
    for at, (producer, kind) in enumerate(draw(st.lists(steps, min_size=1, max_size=60))):
        if kind == "data":
            history.batches.append(data(at, producer))
            history.open.setdefault(producer, []).append(at)
        elif kind == "plain":
            history.batches.append(plain_batch(at, 1, producer=producer + 10))
        else:
            history.batches.append(marker(at, producer, ABORT if kind == "abort" else COMMIT))
            offsets = history.open.pop(producer, None)
            if offsets and kind == "abort":
                history.aborted.append(AbortedRange(producer, Offset(offsets[0]), Offset(at)))
    return history


@given(histories(), st.data())
def test_segments_cut_anywhere_tell_together_what_is_aborted(history: History, choose: st.DataObject) -> None:
    count = len(history.batches)
    cuts = sorted(choose.draw(st.sets(st.integers(1, max(1, count - 1)), max_size=4)))
    borders = [0, *[cut for cut in cuts if cut < count], count]
    before = EMPTY
    aborted_ranges: list[AbortedRange] = []
    for number, (start, stop) in enumerate(pairwise(borders)):
        log = b"".join(history.batches[start:stop])
        check = checked(log, b"", start, before)
        alone = checked(log, check.bytes(), start, OpenBefore())
        assert alone.difference() is None
        aborted_ranges += [each.range for each in check.aborted]
        left = dict(check.open)
        later = [b"".join(history.batches[a:b]) for a, b in pairwise(borders[number + 1 :])]
        behind = [decision for each in later if left for decision in decide(left, [(0, each)], "later")]
        touching = {each for each in history.aborted if each.first < stop and each.last >= start}
        assert {each.range for each in check.aborted} | set(behind) == touching
        assert left.keys() == history.open.keys() & {p for p, offsets in history.open.items() if offsets[0] < stop}
        before = OpenBefore(check.open, complete=True)
    assert aborted_ranges == history.aborted


def damaged_copy(tmp_path: Path, base: int, index: bytes | None) -> Path:
    source = golden_folder("transactions").path
    folder = tmp_path / source.name
    shutil.copytree(source, folder)
    file = folder / f"{base:020d}.txnindex"
    file.unlink()
    if index is not None:
        file.write_bytes(index)
    return folder


@pytest.mark.parametrize("damage", ["bit", "gone", "cut off"])
def test_a_folder_is_read_by_its_markers_and_names_the_index_that_says_otherwise(tmp_path: Path, damage: str) -> None:
    base, good = next((each.base, each.index) for each in golden("transactions") if each.index)
    flipped = bytes([*good[:9], good[9] ^ 1, *good[10:]])
    folder = damaged_copy(tmp_path, base, {"bit": flipped, "gone": None, "cut off": good[:-7]}[damage])
    log = open_log(folder)
    assert list(log.differences) == [folder / f"{base:020d}.txnindex"]
    shown = [row for block in blocks_of(log, committed=True) for row in rows(block)]
    assert shown == golden_rows("transactions", "read_committed")
    lone = open_log(folder / f"{base:020d}.log")
    assert list(lone.differences) == [folder / f"{base:020d}.txnindex"]


def test_the_index_of_a_segment_that_is_written_may_lack_its_last_entries_but_not_contradict(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    (folder / f"{0:020d}.log").write_bytes(data(0, 1) + marker(1, 1, ABORT) + data(2, 1) + marker(3, 1, ABORT))
    index = folder / f"{0:020d}.txnindex"
    good = format_transaction_index([entry(1, 0, 1), entry(1, 2, 3)])
    for bytes_, agrees in ((good, True), (good[:34], True), (good[:50], True), (b"", True), (good[34:], False)):
        index.write_bytes(bytes_)
        assert (open_log(folder).differences == {}) == agrees


@pytest.mark.parametrize("case", ["transactions", "opentxn", "gzip", "epochs", "none"])
def test_a_sound_folder_has_no_difference_even_without_its_snapshots(tmp_path: Path, case: str) -> None:
    source = golden_folder(case).path
    shutil.copytree(source, tmp_path / source.name)
    for file in [*(tmp_path / source.name).glob("*.snapshot"), None]:
        log = open_log(tmp_path / source.name)
        assert log.differences == {}
        if file is not None:
            file.unlink()
