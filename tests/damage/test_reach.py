"""Every reader hands out the records before the damage, and reports where the damage is."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path

import pytest

from tests.damage.readers import OTHERS, PIECES, SEGMENTS, Answered, Reader
from tests.damage.segments import DAMAGED, FORMS, SEGMENT, TOPIC, Form, Row, Segments, batch_positions, made_segments
from tests.tiers import few
from tierstate.state.errors import TierstateError
from tierstate.state.object_keys import ObjectKind, object_key
from tierstate.storage.segment.manifest_json import parse_manifest

READERS = [reader for reader in (*SEGMENTS, *PIECES, *OTHERS) if not reader.whole and not reader.one_segment]
LOG, MANIFEST = ObjectKind.LOG, ObjectKind.MANIFEST
BASE, RECORDS = 7, 70
"""Bytes of a batch: the last one of its base offset, which no CRC covers, and one of its records."""


@pytest.fixture(scope="module", params=few(FORMS, (FORMS[0], FORMS[2], FORMS[3])), ids=lambda form: form.name)
def segments(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Segments]:
    form: Form = request.param
    folder: Path = tmp_path_factory.mktemp("reach")
    with made_segments(form, folder / "made") as opened:
        yield opened


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
@pytest.mark.parametrize("byte", [BASE, RECORDS])
def test_the_records_before_the_damage_come_first(segments: Segments, reader: Reader, byte: int) -> None:
    expected, whole = list(segments.expected(segments.extent)), segments.whole[LOG]
    assert whole is not None
    try:
        for at, reach in damages(segments, byte):
            segments.put({LOG: whole[:at] + bytes([whole[at] ^ 2]) + whole[at + 1 :]})
            rows, error = read(segments, reader)
            assert rows == expected[: len(rows)]
            assert error is not None, "the last batch is damaged, too"
            assert rows[-1][0] >= reach, f"byte {at}"
            text = str(error)
            assert object_key(segments.segment.object_key, LOG) in text
            assert isinstance(error, Answered) or f"partition={TOPIC}-0" in text
            assert f"tierstate verify {TOPIC}:0 --level 3" in text
    finally:
        segments.put({LOG: whole})


def read(segments: Segments, reader: Reader) -> tuple[list[Row], TierstateError | None]:
    rows = list[Row]()
    try:
        rows.extend(islice(reader.rows(segments, segments.extent), 1000))
    except TierstateError as error:
        return rows, error
    return rows, None


def damages(segments: Segments, byte: int) -> Iterator[tuple[int, int]]:
    """Yield a byte of the log object, and the offset up to which every reader must get when that byte is damaged."""
    log, manifest = segments.log, segments.whole[MANIFEST]
    assert manifest is not None
    index = parse_manifest(manifest, source="manifest").chunks
    chunks = [index.chunk(number) for number in range(index.count)]
    batches = [*pairwise([*batch_positions(log), len(log)])]
    by_batch = segments.form.as_it_is and (byte == RECORDS or segments.form.layout == "full")
    for start, _ in (batches[0], batches[len(batches) // 2], batches[-1]):
        at = start + byte
        chunk = next(chunk for chunk in chunks if chunk.plain_start <= at < chunk.plain_stop)
        limit = start if by_batch else chunk.plain_start
        stored = at if segments.form.as_it_is else (chunk.stored_start + chunk.stored_stop) // 2
        yield stored, last_record_before(segments, log, [batch for batch in batches if batch[1] <= limit])


def last_record_before(segments: Segments, log: bytes, batches: list[tuple[int, int]]) -> int:
    """Return the last visible offset in these batches of the damaged segment, or in the segment before it."""
    stop = DAMAGED * SEGMENT
    if batches:
        start, _ = batches[-1]
        header = log[start : start + 61]
        stop = int.from_bytes(header[:8], "big") + int.from_bytes(header[23:27], "big") + 1
    return max(row[0] for row in segments.rows if row[0] < stop)
