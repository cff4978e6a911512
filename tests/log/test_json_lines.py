"""Records as JSON lines (commands.md), from blocks and from Arrow alike."""

from __future__ import annotations

import json
from base64 import b64encode
from contextlib import suppress

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.log.batches import TIME, Batch, golden_folder, record
from tierstate.log.decode import decode_batches, decode_records
from tierstate.log.json_lines import Encoding, block_lines, json_lines


def both(data: bytes, encoding: Encoding, tier: str | None = None) -> list[dict[str, object]]:
    decoded = decode_records(data, source="f")
    blocks = b"".join(lines for block in decoded for lines in block_lines(block, "t", 3, encoding, tier))
    arrow = b"".join(
        lines
        for batch in decode_batches(data, source="f", topic="t", partition=3)
        for lines in json_lines(batch, encoding, tier)
    )
    assert blocks == arrow
    assert blocks.endswith(b"\n")
    return [json.loads(line) for line in blocks[:-1].split(b"\n")]


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


def test_every_byte_is_seen_wherever_it_stands_in_a_text() -> None:
    """Eight bytes are looked at together; the place may be in the first eight, or in the rest behind them."""
    values = [b"x" * at + bytes([byte]) + b"\x7f" * (11 - at) for byte in range(256) for at in range(12)]
    data = Batch(0, [record(number, None, value) for number, value in enumerate(values)]).bytes
    for value, line in zip(values, both(data, Encoding.UTF8), strict=True):
        shown = value.decode() if value.isascii() else {"base64": b64encode(value).decode()}
        assert line["value"] == shown, value


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


def shown(data: bytes | None, encoding: Encoding) -> object:
    if data is None:
        return None
    if encoding is Encoding.UTF8:
        with suppress(UnicodeDecodeError):
            return data.decode()
        return {"base64": b64encode(data).decode()}
    return b64encode(data).decode()


HOSTILE = st.binary(max_size=12) | st.text(alphabet='a"\\/\n\0\x1f\x7f\u2028ß\U0001f600', max_size=12).map(str.encode)
NAMES = st.text(alphabet='n"\\\tß', max_size=3)
ROWS = st.lists(
    st.tuples(HOSTILE | st.none(), HOSTILE | st.none(), st.lists(st.tuples(NAMES, HOSTILE | st.none()), max_size=3)),
    min_size=1,
    max_size=8,
)


@given(ROWS, st.sampled_from(Encoding), st.sampled_from([None, "remote"]), st.integers(0, 3))
def test_every_line_is_the_one_that_orjson_writes(
    rows: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    encoding: Encoding,
    tier: str | None,
    skipped: int,
) -> None:
    expected = []
    for offset, (key, value, headers) in enumerate(rows):
        line = {"topic": "t", "partition": 3, "offset": offset, "timestamp": TIME, "timestampType": 0}
        named = [{"key": name, "value": shown(data, encoding)} for name, data in headers]
        line |= {"key": shown(key, encoding), "value": shown(value, encoding), "headers": named}
        expected.append(orjson.dumps(line if tier is None else line | {"tier": tier}, option=orjson.OPT_APPEND_NEWLINE))
    records = [
        record(number, key, value, [(name.encode(), data) for name, data in headers])
        for number, (key, value, headers) in enumerate(rows)
    ]
    (batch,) = decode_batches(Batch(0, records).bytes, source="f", topic="t", partition=3)
    assert b"".join(json_lines(batch.slice(skipped), encoding, tier)) == b"".join(expected[skipped:])
