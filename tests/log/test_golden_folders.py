"""Folders that a real broker left decode to exactly what a real consumer returned."""

from __future__ import annotations

import json
from base64 import b64encode

import pytest

from tests.log.batches import CASES, GOLDEN, Row, block_rows, blocks_of, golden_folder, golden_rows
from tierstate.log.decode import RECORD_SCHEMA, decode_batches, decode_records
from tierstate.log.folder import LogFiles, open_log
from tierstate.log.json_lines import Encoding, block_lines

BOTH = ("read_uncommitted", "read_committed")


def log_of(case: str) -> LogFiles:
    return open_log(golden_folder(case).path)


def rows_of(log: LogFiles, isolation: str) -> list[Row]:
    return [row for block in blocks_of(log, committed=isolation == "read_committed") for row in block_rows(block)]


def test_every_golden_case_is_there() -> None:
    assert {"none", "gzip", "snappy", "lz4", "zstd", "transactions", "opentxn", "epochs", "big"} <= set(CASES)
    assert all(golden_rows(case, isolation) for case in CASES for isolation in BOTH)


@pytest.mark.parametrize("isolation", BOTH)
@pytest.mark.parametrize("case", CASES)
def test_blocks_are_what_a_consumer_read(case: str, isolation: str) -> None:
    assert rows_of(log_of(case), isolation) == golden_rows(case, isolation)


@pytest.mark.parametrize("isolation", BOTH)
@pytest.mark.parametrize("case", CASES)
def test_arrow_is_what_a_consumer_read(case: str, isolation: str) -> None:
    log = log_of(case)
    committed = isolation == "read_committed"
    rows: list[Row] = []
    for segment in log.segments:
        for position, data in segment.pieces():
            for batch in decode_batches(
                data,
                source=str(segment.path),
                topic=log.topic,
                partition=log.partition,
                position=position,
                aborted=log.aborted if committed else None,
                end=log.decided_end if committed else None,
                milliseconds=True,
            ):
                batch.validate(full=True)
                assert batch.schema == RECORD_SCHEMA
                for row in batch.to_pylist():
                    assert (row["topic"], row["partition"]) == (log.topic, log.partition)
                    assert row["headers"] != []
                    headers = tuple((each["key"], each["value"]) for each in row["headers"] or ())
                    time = round(row["timestamp"].timestamp() * 1000)
                    rows.append((row["offset"], time, row["timestampType"], row["key"], row["value"], headers))
    assert rows == golden_rows(case, isolation)


@pytest.mark.parametrize("case", ["lz4", "transactions", "appendtime"])
def test_json_lines_in_base64_are_what_a_consumer_read(case: str) -> None:
    def text(data: bytes | None) -> str | None:
        return None if data is None else b64encode(data).decode()

    log = log_of(case)
    lines = [
        json.loads(line)
        for block in blocks_of(log, committed=False)
        for lines in block_lines(block, "t", 7, Encoding.BASE64, "remote")
        for line in bytes(lines).splitlines()
    ]
    assert lines == [
        {
            "topic": "t",
            "partition": 7,
            "offset": offset,
            "timestamp": time,
            "timestampType": kind,
            "key": text(key),
            "value": text(value),
            "headers": [{"key": name, "value": text(content)} for name, content in headers],
            "tier": "remote",
        }
        for offset, time, kind, key, value, headers in golden_rows(case, "read_uncommitted")
    ]


def test_a_transaction_that_is_open_at_the_end_is_named_and_hides_what_follows_it() -> None:
    log = log_of("opentxn")
    shown = golden_rows("opentxn", "read_committed")
    everything = golden_rows("opentxn", "read_uncommitted")
    assert log.undecided
    assert log.decided_end is not None
    assert shown[-1][0] < log.decided_end <= everything[-1][0]
    assert log_of("transactions").undecided == {}


def test_a_segment_file_is_decided_by_the_segments_that_follow_it() -> None:
    folder = golden_folder("transactions")
    rows: list[Row] = []
    for base in folder.base_offsets:
        log = open_log(folder.log_path(base))
        assert log.undecided == {}
        rows += rows_of(log, "read_committed")
    assert rows == golden_rows("transactions", "read_committed")


@pytest.mark.parametrize("case", ["none", "zstd", "transactions"])
def test_every_start_and_end_cuts_exactly(case: str) -> None:
    folder = golden_folder(case)
    data = b"".join(folder.log_path(base).read_bytes() for base in folder.base_offsets)
    rows = golden_rows(case, "read_uncommitted")
    last = rows[-1][0]
    for start in (0, 1, last // 2, last, last + 1):
        for end in (0, 1, last // 2 + 1, last, last + 1):
            blocks = decode_records(data, source=case, start=start, end=end)
            rows_read = [row for block in blocks for row in block_rows(block)]
            assert rows_read == [row for row in rows if start <= row[0] < end]


def test_golden_data_has_what_makes_decoding_hard() -> None:
    rows = [row for case in CASES for row in golden_rows(case, "read_uncommitted")]
    headers = [header for row in rows for header in row[5]]
    assert {None, b""} <= {row[3] for row in rows}
    assert {None, b""} <= {row[4] for row in rows}
    assert any(content is None for _, content in headers)
    assert any(not name.isascii() for name, _ in headers)
    assert {row[2] for row in rows} == {0, 1}
    assert (GOLDEN / "README.md").exists()
