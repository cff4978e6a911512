"""Records as JSON lines (commands.md), from blocks and from Arrow alike."""

from __future__ import annotations

import json

import pytest

from tests.log.batches import TIME, Batch, golden_folder, record
from tierstate.log.decode import decode_batches, decode_records
from tierstate.log.json_lines import Encoding, block_lines, json_lines


def both(data: bytes, encoding: Encoding, tier: str | None = None) -> list[dict[str, object]]:
    blocks = [line for block in decode_records(data, source="f") for line in block_lines(block, "t", 3, encoding, tier)]
    arrow = [
        line
        for batch in decode_batches(data, source="f", topic="t", partition=3)
        for line in json_lines(batch, encoding, tier)
    ]
    assert blocks == arrow
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in blocks)
    return [json.loads(line) for line in blocks]


def test_text_is_text_and_other_bytes_are_base64() -> None:
    data = Batch(
        17, [record(0, "größe".encode(), b"\xff\n", [(b"trace", b"\xfe"), (b"n", None)]), record(1, None, b"")]
    ).bytes
    assert both(data, Encoding.UTF8) == [
        {
            "topic": "t",
            "partition": 3,
            "offset": 17,
            "timestamp": TIME,
            "timestampType": 0,
            "key": "größe",
            "value": {"base64": "/wo="},
            "headers": [{"key": "trace", "value": {"base64": "/g=="}}, {"key": "n", "value": None}],
        },
        {
            "topic": "t",
            "partition": 3,
            "offset": 18,
            "timestamp": TIME,
            "timestampType": 0,
            "key": None,
            "value": "",
            "headers": [],
        },
    ]


def test_base64_is_for_all_bytes_and_null_stays_null() -> None:
    (first,) = both(Batch(0, [record(0, b"a", None, [(b"h", b"b")])]).bytes, Encoding.BASE64, "local")
    assert (first["key"], first["value"], first["tier"]) == ("YQ==", None, "local")
    assert first["headers"] == [{"key": "h", "value": "Yg=="}]


@pytest.mark.parametrize("case", ["none", "appendtime", "big"])
def test_golden_logs_print_alike_from_blocks_and_from_arrow(case: str) -> None:
    folder = golden_folder(case)
    assert both(folder.log_path(folder.base_offsets[0]).read_bytes(), Encoding.UTF8)


def test_times_before_the_epoch_keep_their_millisecond() -> None:
    (first,) = both(Batch(0, [record(0, None, None)], time=-1).bytes, Encoding.UTF8)
    assert first["timestamp"] == -1
