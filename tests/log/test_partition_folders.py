"""The folders that are partitions and the files that are segments' logs, and how a log is read in pieces."""

from __future__ import annotations

import shutil
import tracemalloc
from pathlib import Path

import pytest

from tests.log.batches import TIME, ZSTD, Batch, blocks_of, golden_folder, plain_batch, record
from tierstate.log.batch import iter_batches
from tierstate.log.folder import open_log
from tierstate.log.local_log import LogDirs
from tierstate.log.partition import folder_name, format_epoch_checkpoint, open_partition, parse_epoch_checkpoint
from tierstate.log.segment import LogSegment
from tierstate.state.epochs import Lineage
from tierstate.state.errors import CorruptData, InvalidRequest
from tierstate.state.ids import TopicId, TopicIdPartition
from tierstate.state.offsets import Offset


def write(folder: Path, base: int, data: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{base:020d}.log"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("orders-0", ("orders", 0)),
        ("or-ders.v2_x-12", ("or-ders.v2_x", 12)),
        ("orders-0.0123456789abcdef0123456789abcdef-delete", None),
        ("orders-0.0123456789abcdef0123456789abcdef-stray", None),
        ("orders-0.0123456789abcdef0123456789abcdef-future", None),
        ("orders", None),
        ("orders-", None),
        ("or ders-1", None),
        ("remote-log-index-cache", None),
    ],
)
def test_only_live_folders_have_a_name(name: str, found: tuple[str, int] | None) -> None:
    assert folder_name(Path("/logs") / name) == found


def test_a_golden_folder_is_known_by_its_name_id_segments_and_epochs() -> None:
    folder = golden_folder("epochs")
    assert (folder.topic, folder.partition) == ("epochs", 0)
    assert folder.topic_id is not None
    assert folder.base_offsets == (0, 340, 680, 1020, 1360, 1700)
    assert len(folder.lineage.entries) == 5


def test_files_about_to_go_or_to_come_are_no_segments(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    write(folder, 0, plain_batch(0))
    for suffix in (".deleted", ".cleaned", ".swap"):
        (folder / f"{7:020d}.log{suffix}").write_bytes(b"x")
    assert open_partition(folder).base_offsets == (0,)
    with pytest.raises(InvalidRequest):
        open_partition(tmp_path)


def test_a_damaged_topic_id_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    write(folder, 0, b"")
    for text in ("version: 0\ntopic_id: short\n", "version: 0\n"):
        (folder / "partition.metadata").write_text(text)
        with pytest.raises(CorruptData):
            open_partition(folder)


def test_a_path_that_is_no_log_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    write(folder, 0, plain_batch(0))
    (folder / "leader-epoch-checkpoint").write_bytes(b"0\n0\n")
    for path in (folder / "leader-epoch-checkpoint", folder / f"{5:020d}.log", tmp_path):
        with pytest.raises(InvalidRequest):
            open_log(path)


@pytest.mark.parametrize("piece_bytes", [1, 61, 100, 1000, 1 << 20])
@pytest.mark.parametrize("case", ["none", "zstd", "transactions"])
def test_pieces_of_any_size_are_whole_batches_and_the_whole_log(case: str, piece_bytes: int) -> None:
    folder = golden_folder(case)
    segment = LogSegment(folder.log_path(folder.base_offsets[0]))
    positions = {batch.position for batch in segment.batches()}
    at, data_read = 0, b""
    for position, data in segment.pieces(piece_bytes):
        assert position == at
        assert position in positions
        data_read += data
        at += len(data)
    assert data_read == segment.path.read_bytes()


def test_zeros_after_an_active_log_are_no_data(tmp_path: Path) -> None:
    path = write(tmp_path / "t-0", 0, plain_batch(0) + plain_batch(3) + bytes(5000))
    for piece_bytes in (1, 200, 1 << 20):
        assert sum(len(data) for _, data in LogSegment(path, active=True).pieces(piece_bytes)) == 2 * len(
            plain_batch(0)
        )
    assert [len(block) for block in blocks_of(open_log(path.parent), committed=False)] == [6]
    with pytest.raises(CorruptData):
        list(LogSegment(path).pieces())
    path.write_bytes(plain_batch(0) + bytes(5000) + b"\1")
    with pytest.raises(CorruptData):
        list(LogSegment(path, active=True).pieces())


def test_a_log_that_ends_inside_a_batch_gives_whole_batches_and_an_error(tmp_path: Path) -> None:
    whole = plain_batch(0) + plain_batch(3)
    last = plain_batch(6)
    for cut in range(8, len(last)):  # before that there are only zeros
        path = write(tmp_path / "t-0", 0, whole + last[:cut])
        pieces = LogSegment(path, active=True).pieces()
        assert next(pieces) == (0, whole)
        with pytest.raises(CorruptData, match=f"position={len(whole)}"):
            next(pieces)


def test_a_batch_that_claims_gigabytes_reads_no_more_than_a_piece(tmp_path: Path) -> None:
    data = plain_batch(0)
    lie = data[:8] + (2**31 - 100).to_bytes(4, "big") + data[12:]
    path = write(tmp_path / "t-0", 0, lie + bytes(64 << 20))
    tracemalloc.start()
    with pytest.raises(CorruptData):
        list(LogSegment(path).pieces(1 << 20))
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


def test_one_batch_larger_than_a_piece_is_read_whole(tmp_path: Path) -> None:
    big = Batch(3, [record(0, None, bytes(5 << 20))]).bytes
    path = write(tmp_path / "t-0", 0, plain_batch(0) + big + plain_batch(4))
    assert [len(data) for _, data in LogSegment(path).pieces(1 << 20)] == [
        len(plain_batch(0)), len(big), len(plain_batch(4)),
    ]  # fmt: skip


def test_offsets_that_go_back_between_pieces_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "t-0", 0, plain_batch(0) + plain_batch(3) + plain_batch(1))
    with pytest.raises(CorruptData, match="do not increase"):
        list(LogSegment(path).pieces(1))


def test_a_transaction_left_open_hides_all_that_follows(tmp_path: Path) -> None:
    log = plain_batch(0) + plain_batch(3, producer=9, attributes=16) + plain_batch(6)
    write(tmp_path / "t-0", 0, log)
    log_read = open_log(tmp_path / "t-0")
    assert (log_read.undecided, log_read.decided_end) == ({9: 3}, 3)
    assert sum(len(block) for block in blocks_of(log_read, committed=True)) == 3
    assert sum(len(block) for block in blocks_of(log_read, committed=False)) == 9


def test_the_batches_of_a_log_are_listed_with_control_batches(tmp_path: Path) -> None:
    source = golden_folder("transactions")
    shutil.copytree(source.path, tmp_path / "t-0")
    record_batches = [batch for _, batch in open_log(tmp_path / "t-0").batches()]
    assert any(batch.is_control for batch in record_batches)
    assert [batch.base_offset for batch in record_batches] == sorted(batch.base_offset for batch in record_batches)


def test_a_header_says_what_was_written() -> None:
    data = Batch(
        9, [record(0, None, None)], ZSTD, attributes=16, producer=77, max_time=TIME + 5, delta=3, epoch=6
    ).bytes
    (header,) = iter_batches(data, source="f")
    assert (header.base_offset, header.last_offset, header.size_bytes) == (9, 12, len(data))
    assert (header.partition_leader_epoch, header.magic, header.codec) == (6, 2, ZSTD)
    assert (header.first_timestamp, header.max_timestamp) == (TIME, TIME + 5)
    assert (header.producer_id, header.record_count) == (77, 1)
    assert (header.is_transactional, header.is_control) == (True, False)


def test_an_epoch_checkpoint_of_any_length_is_read_whole(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    folder.mkdir()
    lineage = Lineage.of(*((epoch, 10 * epoch) for epoch in range(20_000)))
    (folder / "leader-epoch-checkpoint").write_bytes(format_epoch_checkpoint(lineage))
    assert open_partition(folder).lineage == lineage


@pytest.mark.parametrize(
    "rows",
    [
        "0 " + "9" * 5000,
        "9" * 5000 + " 0",
        f"0 {2**63}",
        f"{2**31} 0",
        "0 9223372036854775808",
        "-1 0",
        "\u0661 0",
    ],
)
def test_numbers_that_no_checkpoint_has_are_refused_and_named(rows: str) -> None:
    with pytest.raises(CorruptData, match=r"checkpoint entry.*file=f line=3"):
        parse_epoch_checkpoint(f"0\n1\n{rows}\n", "f")
    with pytest.raises(CorruptData, match="file=f"):
        parse_epoch_checkpoint("0\n" + "9" * 5000 + "\n0 0\n", "f")


def folder_of(tmp_path: Path, *segments: bytes, bases: tuple[int, ...], epochs: Lineage | None = None) -> Path:
    folder = tmp_path / "t-0"
    for base, data in zip(bases, segments, strict=True):
        write(folder, base, data)
    if epochs is not None:
        (folder / "leader-epoch-checkpoint").write_bytes(format_epoch_checkpoint(epochs))
    return folder


@pytest.mark.parametrize(
    ("segments", "bases", "said"),
    [
        ((plain_batch(0), plain_batch(1)), (0, 3), "below its segment's base offset"),
        ((plain_batch(0) + plain_batch(3), plain_batch(6)), (0, 5), "reaches into the next segment"),
        ((plain_batch(0, epoch=2), plain_batch(3, epoch=1)), (0, 3), "leader epochs go back"),
    ],
)
def test_batches_that_are_not_where_their_files_say_are_refused(
    tmp_path: Path, segments: tuple[bytes, ...], bases: tuple[int, ...], said: str
) -> None:
    folder = folder_of(tmp_path, *segments, bases=bases)
    with pytest.raises(CorruptData, match=f"{said}.*file=.*position="):
        open_log(folder)


def test_one_segment_file_is_compared_with_the_name_of_the_next(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, plain_batch(0) + plain_batch(3), plain_batch(6), bases=(0, 5))
    with pytest.raises(CorruptData, match="reaches into the next segment"):
        open_log(folder / f"{0:020d}.log")


@pytest.mark.parametrize("epoch", [1, 4, 9])
def test_a_batch_of_another_epoch_than_the_checkpoint_says_is_refused(tmp_path: Path, epoch: int) -> None:
    log = plain_batch(0, epoch=0) + plain_batch(3, epoch=epoch)
    folder = folder_of(tmp_path, log, bases=(0,), epochs=Lineage.of((0, 0), (3, 3), (7, 6)))
    with pytest.raises(CorruptData, match=f"another leader epoch.*offsets=3..5 leader_epoch={epoch} checkpoint=3"):
        open_log(folder)


def test_below_its_log_start_a_checkpoint_says_nothing_of_epochs(tmp_path: Path) -> None:
    log = plain_batch(0, epoch=1) + plain_batch(3, epoch=2) + plain_batch(6, epoch=5)
    folder = folder_of(tmp_path, log, bases=(0,), epochs=Lineage.of((2, 4), (5, 6)))
    assert sum(len(block) for block in blocks_of(open_log(folder), committed=False)) == 9


def test_a_lineage_reaches_down_to_the_log_start_of_a_broker_that_forgot_a_later_one(tmp_path: Path) -> None:
    first = plain_batch(0, epoch=1) + plain_batch(3, epoch=2)
    second = plain_batch(6, epoch=2) + plain_batch(9, epoch=4)
    checkpoint, whole = Lineage.of((4, 10), (5, 12)), Lineage.of((1, 1), (2, 3), (4, 9), (5, 12))
    folder = folder_of(tmp_path, first, second, plain_batch(12, epoch=5), bases=(0, 6, 12), epochs=checkpoint)
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    partition = TopicIdPartition(TopicId.of(b"topic id of 16 b"), 0)
    (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {partition.topic_id}\n")
    with LogDirs([tmp_path]) as dirs:
        assert dirs.snapshot(partition, "t").lineage == checkpoint
        assert dirs.snapshot(partition, "t", Offset(10)).lineage == checkpoint
        assert dirs.snapshot(partition, "t", Offset(1)).lineage == whole
        with dirs.open_segment(partition, "t", Offset(6), Offset(12)) as files:
            assert files.lineage == whole
