"""Markers decide what is aborted, whatever a broker, a manifest or a transaction index says.

`TwoTiers.copy` copies as versions before 0029 did: it believes the broker's transaction indexes.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fetch.two_tiers import GOLDEN, Folder, Golden, golden_rows, rows_of
from tests.log.batches import marker, plain_batch
from tierstate.fetch.local import hidden_ranges
from tierstate.fetch.plan import plan
from tierstate.fetch.split import read_split
from tierstate.fetch.verify import Finding, Severity
from tierstate.fetch.verify_objects import Verifier
from tierstate.log.batch import TRANSACTIONAL, BatchHeader, iter_batches
from tierstate.log.transactions import ABORT, COMMIT, marker_type
from tierstate.state.errors import CorruptData
from tierstate.state.object_keys import ObjectKind, object_key
from tierstate.state.offsets import Offset
from tierstate.state.routing import Isolation, Tier

NewGolden = Callable[..., Golden]
CASE = "opentxn"
LATER = 861
"""The base offset of a segment whose index has an abort that began in segments before it."""


def folder_without(tmp_path: Path, base: int, number: int, producer: int | None = None) -> Path:
    """Return the golden folder with one entry of a transaction index removed, or changed to another producer."""
    source = next(path for path in (GOLDEN / CASE).iterdir() if path.is_dir())
    folder = tmp_path / source.name
    shutil.copytree(source, folder)
    file = folder / f"{base:020d}.txnindex"
    good = file.read_bytes()
    entry = good[34 * number : 34 * number + 34]
    other = b"" if producer is None else entry[:2] + producer.to_bytes(8, "big") + entry[10:]
    file.write_bytes(good[: 34 * number] + other + good[34 * number + 34 :])
    return folder


def spanning(base: int) -> int:
    """Return the number of the entry that began in an earlier segment."""
    source = next(path for path in (GOLDEN / CASE).iterdir() if path.is_dir())
    entries = struct.iter_unpack(">hqqqq", (source / f"{base:020d}.txnindex").read_bytes())
    return next(number for number, (_, _, first, _, _) in enumerate(entries) if first < base)


def read_as_planned(
    golden: Golden, isolation: Isolation = Isolation.READ_COMMITTED, piece_bytes: int = 1 << 20
) -> list[int]:
    end = Offset(golden.segments[-1].offsets.end + 1)
    splits = plan(golden.reader, {("t", 0): (Offset(0), end)}, isolation=isolation, tier=Tier.REMOTE)
    pieces = [read_split(split, golden.tiers.store, None, piece_bytes=piece_bytes) for split in splits]
    return [row[0] for piece in pieces for row in rows_of(piece)]


def read(golden: Golden, isolation: Isolation = Isolation.READ_COMMITTED, piece_bytes: int = 1 << 20) -> list[int]:
    end = golden.segments[-1].offsets.end + 1
    pieces = golden.reader.scan("t", 0, 0, end, isolation=isolation, tier=Tier.REMOTE, piece_bytes=piece_bytes)
    return [row[0] for row in rows_of(pieces)]


READS = pytest.mark.parametrize("read", [read, read_as_planned])
Read = Callable[..., list[int]]


def verify(golden: Golden, level: int = 3) -> list[Finding]:
    tiers = golden.tiers
    verifier = Verifier(tiers.store, level, lambda partition: tiers.view.partition(partition))
    return list(verifier.objects(tiers.view.partition(tiers.partition)))


# Reads.


@READS
@pytest.mark.parametrize("piece_bytes", [1 << 20, 3000])
def test_what_a_copy_shows_of_an_aborted_transaction_is_corrupt_and_named(
    piece_bytes: int, read: Read, golden_log: NewGolden, tmp_path: Path
) -> None:
    golden = golden_log(CASE, copies=4, path=folder_without(tmp_path, 34, 3))
    with pytest.raises(CorruptData, match="of an aborted transaction would be shown") as raised:
        read(golden, piece_bytes=piece_bytes)
    assert raised.value.facts["file"] == f"{golden.segments[1].object_key}.log"
    aborted = Folder(next((GOLDEN / CASE).glob("*-0"))).aborted()
    missing = next(entry for entry in aborted if entry.last == raised.value.facts["marker"])
    assert raised.value.facts["producer"] == missing.producer_id
    assert raised.value.facts["offset"] in range(missing.first, missing.last)
    assert read(golden, Isolation.READ_UNCOMMITTED)


@READS
def test_what_a_copy_hides_of_a_committed_transaction_is_corrupt(
    read: Read, golden_log: NewGolden, tmp_path: Path
) -> None:
    """The index has an entry too many: of a transaction that was committed."""
    source = next((GOLDEN / CASE).glob("*-0"))
    folder = tmp_path / source.name
    shutil.copytree(source, folder)
    producer, first, last = next(committed(Folder(folder)))
    index = folder / f"{34:020d}.txnindex"
    index.write_bytes(index.read_bytes() + struct.pack(">hqqqq", 0, producer, first, last, last + 1))
    golden = golden_log(CASE, copies=4, path=folder)
    with pytest.raises(CorruptData, match="of a committed transaction would be hidden") as raised:
        read(golden)
    assert (raised.value.facts["producer"], raised.value.facts["offset"]) == (producer, first)


def committed(folder: Folder) -> Iterator[tuple[int, int, int]]:
    """Yield producer, first offset and marker of transactions within the segment that begins at 34."""
    log, open_since = folder.file(34, ".log"), dict[int, int]()
    for batch in iter_batches(log, source="folder"):
        if batch.is_transactional and not batch.is_control:
            open_since.setdefault(batch.producer_id, batch.base_offset)
        elif batch.is_control:
            first = open_since.pop(batch.producer_id, None)
            if first is not None and marker_type(batch, log, source="f") == COMMIT:
                yield batch.producer_id, first, batch.base_offset


@READS
@pytest.mark.parametrize("piece_bytes", [1 << 20, 3000, 200])
def test_a_sound_copy_reads_as_kafkas_consumer_did_however_it_is_cut(
    piece_bytes: int, read: Read, golden_log: NewGolden
) -> None:
    golden = golden_log("transactions")
    end = golden.segments[-1].offsets.end + 1
    expected = [row[0] for row in golden_rows("transactions", Isolation.READ_COMMITTED) if row[0] < end]
    assert read(golden, piece_bytes=piece_bytes) == expected


def pieces_of(kinds: list[int | None]) -> tuple[bytes, list[BatchHeader]]:
    """Return transactions of producer 7, a batch and its marker each; None stands for a missing marker."""
    data, at = b"", 0
    for kind in kinds:
        data += plain_batch(at, 2, producer=7, attributes=TRANSACTIONAL)
        data += b"" if kind is None else marker(at + 2, 7, kind)
        at += 3
    return data, list(iter_batches(data, source="broker"))


@given(st.lists(st.sampled_from([ABORT, COMMIT]), max_size=6), st.booleans(), st.data())
def test_a_broker_that_lists_other_transactions_than_its_markers_abort_is_found(
    kinds: list[int], undecided: bool, choose: st.DataObject
) -> None:
    data, headers = pieces_of([*kinds, *([None] if undecided else [])])
    if not headers:
        return
    aborted = [(7, Offset(3 * at)) for at, kind in enumerate(kinds) if kind == ABORT]
    last = [(7, Offset(3 * len(kinds)))] if undecided else []
    ranges = hidden_ranges(data, headers, aborted + choose.draw(st.sampled_from([[], last])), "t-0@0")
    assert [(entry.producer_id, entry.first) for entry in ranges][: len(aborted)] == aborted
    if aborted:
        left_out = choose.draw(st.sampled_from(aborted))
        with pytest.raises(CorruptData, match="aborted") as raised:
            hidden_ranges(data, headers, [entry for entry in aborted if entry != left_out], "t-0@0")
        assert raised.value.facts == {
            "file": "t-0@0", "producer": 7, "offset": left_out[1], "marker": left_out[1] + 2
        }  # fmt: skip
    committed = [Offset(3 * at) for at, kind in enumerate(kinds) if kind == COMMIT]
    if committed:
        with pytest.raises(CorruptData, match="committed"):
            hidden_ranges(data, headers, sorted([*aborted, (7, choose.draw(st.sampled_from(committed)))]), "t-0@0")


def test_a_batch_that_a_cleaner_emptied_contradicts_nothing() -> None:
    data = plain_batch(0, 0, producer=7, attributes=TRANSACTIONAL, delta=2) + marker(3, 7, ABORT)
    assert hidden_ranges(data, list(iter_batches(data, source="broker")), (), "t-0@0") == ()


# Copies of earlier versions.


@pytest.mark.parametrize("case", ["transactions", CASE, "gzip"])
def test_a_sound_copy_has_no_finding_at_level_3(case: str, golden_log: NewGolden) -> None:
    assert verify(golden_log(case)) == []


def test_a_copy_that_believed_a_damaged_index_is_a_finding_at_level_3_only(
    golden_log: NewGolden, tmp_path: Path
) -> None:
    golden = golden_log(CASE, path=folder_without(tmp_path, 34, 3))
    (finding,) = verify(golden)
    assert (finding.severity, finding.segment_id) == (Severity.CORRUPT, golden.segments[1].segment_id)
    assert finding.object == object_key(golden.segments[1].object_key, ObjectKind.MANIFEST)
    assert "aborted transaction would be shown" in finding.what
    assert verify(golden, level=2) == []


def test_a_copied_index_that_says_otherwise_than_the_markers_is_named(golden_log: NewGolden, tmp_path: Path) -> None:
    """Kafka's readers of the same objects use it, and also its last stable offsets, which we never read."""
    source = next(path for path in (GOLDEN / CASE).iterdir() if path.is_dir())
    folder = tmp_path / source.name
    shutil.copytree(source, folder)
    file = folder / f"{34:020d}.txnindex"
    data = bytearray(file.read_bytes())
    data[34 * 4 - 1] ^= 0x80
    file.write_bytes(bytes(data))
    golden = golden_log(CASE, path=folder)
    (finding,) = verify(golden)
    assert finding.object == object_key(golden.segments[1].object_key, ObjectKind.INDEXES)
    assert "entry 3 says" in finding.what


def test_a_segment_whose_abort_lies_in_the_next_one_is_found_by_that_ones_marker(
    golden_log: NewGolden, tmp_path: Path
) -> None:
    golden = golden_log(CASE, path=folder_without(tmp_path, LATER, spanning(LATER)))
    findings = {finding.segment_id: finding.what for finding in verify(golden)}
    before = [segment for segment in golden.segments if segment.offsets.end < LATER]
    wrong = {segment.segment_id for segment in before} & findings.keys()
    assert wrong
    assert all("aborted transaction would be shown" in findings[segment] for segment in wrong)
