"""`tierstate dump-log` prints what a real consumer read, from a real broker's files and from copied segments."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.damage.segments import Form, made_segments
from tests.log.batches import plain_batch
from tests.sampled import sampled
from tests.scenarios import forked
from tests.scenarios.house import TIERSTATE
from tierstate.cli.dump_log import FEW_RECORDS
from tierstate.log.folder import open_log
from tierstate.log.json_lines import block_lines
from tierstate.log.record_lines import Encoding, record_line
from tierstate.state.object_keys import ObjectKind, object_key

DATA = Path(__file__).parents[1] / "data"
UNDECIDED = "opentxn"
FOLDERS = [UNDECIDED, *sorted({path.name for path in (DATA / "kafka-logs").iterdir() if path.is_dir()} - {UNDECIDED})]


def dump(*arguments: str | Path) -> tuple[int, list[dict[str, Any]], str]:
    done = forked.command(["dump-log", *map(str, arguments)], os.environ, 120)
    return done.returncode, [json.loads(line) for line in done.stdout.encode().splitlines()], done.stderr


def golden(path: Path) -> list[list[Any]]:
    with gzip.open(path, "rt") as lines:
        return [json.loads(line) for line in lines]


def as_golden(record: dict[str, Any]) -> list[Any]:
    """Return a printed record in the form of the golden files, whose timestamp types are librdkafka's."""
    headers = [[header["key"], header["value"]] for header in record["headers"]]
    return [
        record["offset"], record["timestamp"], record["timestampType"] + 1, record["key"], record["value"], headers,
    ]  # fmt: skip


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("case", sampled(FOLDERS, 3))
def test_a_partition_folder_holds_what_a_consumer_read(case: str, isolation: str) -> None:
    folder = next(path for path in (DATA / "kafka-logs" / case).iterdir() if path.is_dir())
    code, records, notes = dump(folder, "--json", "--encoding", "base64", "--isolation", isolation)
    assert [as_golden(record) for record in records] == golden(DATA / "kafka-logs" / case / f"{isolation}.jsonl.gz")
    finding = case == UNDECIDED and isolation == "read_committed"
    assert code == (1 if finding else 0), notes
    assert ("undecided" in notes) == finding


@pytest.mark.parametrize("case", ["gzip", "epochs", "transactions"])
def test_a_copied_segment_of_aivens_format_holds_its_records(case: str) -> None:
    manifest = next((DATA / "aiven-kafka" / case).rglob("*.rsm-manifest"))
    keyring = ("--keyring", DATA / "aiven-kafka" / "keyring.toml")
    code, records, notes = dump(manifest, "--json", "--encoding", "base64", *keyring)
    assert code == 0, notes
    assert [as_golden(row) for row in records] == golden(DATA / "aiven-kafka" / case / "read_uncommitted.jsonl.gz")


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_an_abort_whose_marker_is_in_the_next_segment_hides_its_records(isolation: str) -> None:
    case = DATA / "aiven-kafka" / "abort-marker-in-next-segment"
    manifest = next(case.rglob("*00846-*.rsm-manifest"))
    code, records, notes = dump(manifest, "--json", "--encoding", "base64", "--isolation", isolation)
    assert code == 0, notes
    assert [as_golden(record) for record in records] == golden(case / f"{isolation}.jsonl.gz")


def test_a_lone_segment_names_the_producers_that_it_cannot_decide(tmp_path: Path) -> None:
    folder = next((DATA / "aiven-kafka" / "abort-marker-in-next-segment").rglob("*00846-*.rsm-manifest")).parent
    alone = tmp_path / folder.parent.name / "0"
    alone.mkdir(parents=True)
    for file in folder.glob("*00846-*"):
        (alone / file.name).write_bytes(file.read_bytes())
    code, records, notes = dump(next(alone.glob("*.rsm-manifest")), "--isolation", "read_committed")
    assert code == 1
    assert "undecided: the transaction of producer" in notes
    assert records == []


def test_an_encrypted_segment_without_its_key_ring_is_a_usage_error_that_says_so() -> None:
    manifest = next((DATA / "aiven-kafka" / "transactions").rglob("*.rsm-manifest"))
    code, records, notes = dump(manifest)
    assert (code, records) == (2, [])
    assert "encrypted and no key ring" in notes


def test_one_segment_file_is_read_alone() -> None:
    segment = next((DATA / "kafka-logs" / "gzip").rglob("*1275.log"))
    _, records, _ = dump(segment)
    assert [record["offset"] for record in records] == list(range(1275, 1275 + len(records)))


@pytest.mark.parametrize("in_a_batch", [500, 700])
def test_a_long_segment_has_every_record_once_where_the_kernels_take_over(in_a_batch: int, tmp_path: Path) -> None:
    """The plain parser ends at a border of batches, or within a batch."""
    records = FEW_RECORDS + 3 * in_a_batch
    folder = tmp_path / "orders-3"
    folder.mkdir()
    segment = folder / f"{0:020d}.log"
    segment.write_bytes(b"".join(plain_batch(base, in_a_batch) for base in range(0, records, in_a_batch)))
    pieces = list(open_log(segment).pieces(committed=False))
    shown = Encoding.UTF8
    plain = [record_line(record, "orders", 3, shown) for piece in pieces for record in piece.records()]
    kernels = [text for piece in pieces for block in piece.blocks() for text in block_lines(block, "orders", 3, shown)]
    done = forked.command(["dump-log", str(segment), "--json"], os.environ, 120)
    assert len(plain) > FEW_RECORDS
    assert done.stdout.encode() == b"".join(plain) == b"".join(kernels)


def test_batches_and_indexes_are_printed_as_objects() -> None:
    folder = DATA / "kafka-logs" / "transactions" / "gold-s7b-transactions-0"
    _, batches, _ = dump(folder, "--batches", "--json")
    assert any(batch["control"] for batch in batches)
    assert batches[0]["base_offset"] == 0
    _, entries, _ = dump(folder, "--indexes", "--json")
    assert {entry["index"] for entry in entries} == {"offset", "time", "transaction"}


def test_damaged_bytes_are_corrupt_data_with_their_position(tmp_path: Path) -> None:
    original = next((DATA / "kafka-logs" / "none").rglob("*0000.log"))
    folder = tmp_path / "t-0"
    folder.mkdir()
    data = bytearray(original.read_bytes())
    data[200] ^= 1
    (folder / original.name).write_bytes(data)
    code, _, notes = dump(folder)
    assert code == 4
    assert "position=" in notes


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_folder_whose_transaction_index_contradicts_its_markers_is_printed_right_and_is_corrupt(
    isolation: str, tmp_path: Path
) -> None:
    source = next(path for path in (DATA / "kafka-logs" / "transactions").iterdir() if path.is_dir())
    folder = tmp_path / source.name
    shutil.copytree(source, folder)
    index = folder / f"{34:020d}.txnindex"
    index.write_bytes(index.read_bytes()[34:])
    code, records, notes = dump(folder, "--json", "--encoding", "base64", "--isolation", isolation)
    assert code == 4
    assert str(index) in notes
    golden_file = DATA / "kafka-logs" / "transactions" / f"{isolation}.jsonl.gz"
    assert [as_golden(record) for record in records] == golden(golden_file)


def test_a_copy_of_kafkas_plugin_whose_transaction_index_contradicts_its_markers_is_corrupt(tmp_path: Path) -> None:
    case = DATA / "aiven-kafka" / "abort-marker-in-next-segment"
    shutil.copytree(case, tmp_path / "copied")
    for objects in (tmp_path / "copied").rglob("*.indexes"):
        data = bytearray(objects.read_bytes())
        manifest = json.loads(objects.with_suffix(".rsm-manifest").read_text())
        span = manifest["segmentIndexes"]["transaction"]
        if span is None:
            continue
        data[span["position"] + 9] ^= 1
        objects.write_bytes(data)
        code, _, notes = dump(objects.with_suffix(".rsm-manifest"), "--json", "--isolation", "read_committed")
        assert code == 4
        assert objects.name in notes
        return
    raise AssertionError("no copied segment has a transaction index")


@pytest.mark.parametrize("kinds", [[ObjectKind.LOG], [*ObjectKind]])
def test_a_log_that_its_manifest_or_its_name_does_not_mean_is_printed_and_called_corrupt(
    kinds: list[ObjectKind], tmp_path: Path
) -> None:
    with made_segments(Form("plain"), tmp_path / "made") as segments:
        manifest = segments.root / object_key(segments.segment.object_key, ObjectKind.MANIFEST)
        code, records, notes = dump(manifest, "--json")
        assert (code, [record["offset"] for record in records]) == (0, [*range(40, 80)]), notes
        segments.put({kind: segments.elsewhere[kind] for kind in kinds})
        code, records, notes = dump(manifest, "--json")
        command = [*TIERSTATE, "dump-log", str(manifest)]
        printed = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=120)
    assert b"corrupt: " in printed.stdout.splitlines()[0], "it says so before the records"
    assert (code, len(records)) == (4, 40)
    assert "corrupt: " in notes
    assert segments.segment.object_key in notes
