"""One test for each guard behind the matrix: which guard finds a damage, and before which records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path

import google_crc32c
import pytest
from confluent_kafka import TopicPartition

from tests.damage.damages import LOG, Damage, damages
from tests.damage.readers import (
    OTHERS,
    PIECES,
    SEGMENTS,
    Reader,
    by_time,
    consumer,
    digest,
    proxy,
    read_records,
)
from tests.damage.segments import CHUNK_BYTES, TOPIC, Form, Row, Segments, batch_positions, made_segments
from tests.log.batches import TIME
from tierstate.consumer.assigned_partition import AssignedPartition
from tierstate.consumer.remote_looks import RemoteRuns
from tierstate.fetch.logical import Ask
from tierstate.fetch.remote_parts import AnotherLog
from tierstate.state.errors import CorruptData, TierstateError
from tierstate.state.offsets import Extent, Offset
from tierstate.state.routing import ReadRemote

Make = Callable[..., Segments]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    opened = list[AbstractContextManager[Segments]]()

    def opened_segments(layout: str = "full", older: bool = False) -> Segments:
        opened.append(made_segments(Form(layout, layout, older=older), tmp_path / layout))
        return opened[-1].__enter__()

    yield opened_segments
    for context in opened:
        context.__exit__(None, None, None)


def pasted(segments: Segments) -> None:
    """Replace the log by another one, each batch of which is valid."""
    segments.put({**segments.whole, LOG: segments.elsewhere[LOG]})


def test_where_a_gap_is_legal_the_first_batch_of_a_chunk_and_the_last_of_all_do_not_move(make: Make) -> None:
    segments = make("compacted", older=True)
    log, positions = segments.log, batch_positions(segments.log)
    leads = [at for before, at in pairwise(positions) if before // CHUNK_BYTES < at // CHUNK_BYTES]
    tried = 0
    for at in (*leads, positions[-1]):
        base, last = span(log, at)
        begin = span(log, positions[positions.index(at) - 1])[1] + 1
        end = (
            span(log, positions[positions.index(at) + 1])[0] if at < positions[-1] else segments.segment.offsets.end + 1
        )
        for moved in {*range(begin, end - (last - base))} - {base}:  # among the batches around it
            tried += 1
            segments.put({**segments.whole, LOG: log[:at] + moved.to_bytes(8, "big") + log[at + 8 :]})
            rows = list[Row]()
            with pytest.raises(CorruptData, match=r"in another chunk|does not end with"):
                rows.extend(proxy(segments, segments.extent))
            assert rows == segments.expected(segments.extent)[: len(rows)]
    assert tried > 2


def span(log: bytes, at: int) -> tuple[int, int]:
    """Return the first and the last offset of the batch that begins here."""
    base = int.from_bytes(log[at : at + 8], "big")
    return base, base + int.from_bytes(log[at + 23 : at + 27], "big")


def test_a_batch_whose_time_was_changed_is_not_passed_over(make: Make) -> None:
    segments = make()
    at = batch_positions(segments.log)[5] + 35
    segments.put({**segments.whole, LOG: segments.log[:at] + bytes(8) + segments.log[at + 8 :]})
    with segments.reader() as reader, pytest.raises(CorruptData, match="CRC"):
        reader.offset_for_time(TOPIC, 0, TIME + 1000 * 61)


def of(segments: Segments, object_: str, region: str) -> list[Damage]:
    return [damage for damage in damages(segments) if damage.row == (object_, region)]


def test_no_time_index_but_the_one_that_was_copied_is_believed(make: Make) -> None:
    segments = make()
    for damage in of(segments, "indexes", "time index"):
        segments.put(damage.objects)
        with pytest.raises(CorruptData, match=r"SHA-256|index"):
            list(by_time(segments, Extent(Offset(40), Offset(80))))


def test_a_time_index_is_proven_once_and_again_where_it_is_another(make: Make) -> None:
    segments = make()
    with segments.reader() as reader:
        remote = reader.remote
        index = remote.time_index(segments.segment)
        segments.put(of(segments, "indexes", "offset index")[0].objects)
        assert remote.time_index(segments.segment) == index, "what was proven is still there"
        segments.put(of(segments, "indexes", "time index")[0].objects)
        with pytest.raises(CorruptData, match="SHA-256"):
            remote.time_index(segments.segment)


@pytest.mark.parametrize("reader", [Reader("digest", digest), Reader("read_records", read_records)])
def test_a_segment_that_is_scanned_from_end_to_end_is_the_one_that_was_copied(reader: Reader, make: Make) -> None:
    segments = make(older=True)
    pasted(segments)
    rows = list[Row]()
    with pytest.raises(AnotherLog, match=segments.segment.object_key):
        rows.extend(reader.rows(segments, segments.extent))
    assert rows == segments.expected(segments.extent)[: len(rows)]


@pytest.mark.parametrize("layout", ["full", "compacted", "transactions"])
def test_a_consumer_takes_nothing_of_another_log(layout: str, make: Make) -> None:
    segments = make(layout, older=True)
    pasted(segments)
    rows = list[Row]()
    with pytest.raises(AnotherLog):
        rows.extend(consumer(segments, segments.extent))
    assert rows == segments.expected(Extent(Offset(0), Offset(40)))


def test_another_log_is_read_from_its_start_again_before_a_consumer_gets_more_of_it(make: Make) -> None:
    """This holds also if an earlier piece was handed out before the end of the log showed the difference."""
    segments = make(older=True)
    runs, part = RemoteRuns(), AssignedPartition(TopicPartition(TOPIC, 0, 40))
    with segments.reader() as reader:
        log = reader.partition(TOPIC, 0)

        def read(at: int) -> object:
            where = log.route(at, segments.form.isolation, ask.tier)
            assert isinstance(where, ReadRemote)
            return runs.read(part, log, where, ask)

        ask = Ask(1 << 20, segments.form.isolation)
        assert read(60) is not None, "of a part nothing tells"
        runs.end(part)
        pasted(segments)
        with pytest.raises(AnotherLog):
            read(40)
        for _ in range(2):
            with pytest.raises(AnotherLog):
                read(60)
        segments.put(segments.whole)
        assert read(60) is not None
    runs.close()


def test_a_moved_batch_is_not_taken_alone_where_a_gap_is_legal(make: Make) -> None:
    """The next batch shows it. In a log without gaps each batch shows it by itself, and all before it come out."""
    for layout in ("transactions", "full"):
        segments = make(layout)
        at = batch_positions(segments.log)[6]
        base = int.from_bytes(segments.log[at : at + 8], "big")
        moved = (base + 1).to_bytes(8, "big")
        segments.put({**segments.whole, LOG: segments.log[:at] + moved + segments.log[at + 8 :]})
        rows = list[Row]()
        with pytest.raises(CorruptData):
            rows.extend(consumer(segments, segments.extent))
        assert rows == segments.expected(Extent(Offset(0), Offset(base)))


def test_crcs_of_pasted_batches_are_right(make: Make) -> None:
    segments = make()
    other = segments.elsewhere[LOG]
    assert other is not None
    assert other != segments.log
    for at in batch_positions(other):
        size = 12 + int.from_bytes(other[at + 8 : at + 12], "big")
        crc = int.from_bytes(other[at + 17 : at + 21], "big")
        assert google_crc32c.value(other[at + 21 : at + size]) == crc


@pytest.mark.parametrize("reader", [*SEGMENTS[:2], *SEGMENTS[3:], *PIECES, OTHERS[0]], ids=lambda reader: reader.name)
def test_a_part_of_another_log_is_not_handed_out(reader: Reader, make: Make) -> None:
    """Each batch of it is valid, and no reader reads to its end."""
    segments = make()
    pasted(segments)
    with pytest.raises(TierstateError, match=f"other bytes|{TOPIC}-0"):
        print(*reader.rows(segments, Extent(Offset(52), Offset(60))))


@pytest.mark.parametrize("reader", [*PIECES, OTHERS[0]], ids=lambda reader: reader.name)
def test_batches_before_a_bad_one_in_its_chunks_are_handed_out(reader: Reader, make: Make) -> None:
    """This holds for the first batch in its chunk, and for the last one, which goes on in the next chunk."""
    segments = make()
    for at in batch_positions(segments.log):
        value = at + 160
        flipped = bytes([segments.log[value] ^ 1])
        segments.put({**segments.whole, LOG: segments.log[:value] + flipped + segments.log[value + 1 :]})
        rows = list[Row]()
        with pytest.raises(TierstateError):
            rows.extend(reader.rows(segments, segments.extent))
        assert rows == segments.expected(Extent(Offset(0), Offset(span(segments.log, at)[0])))
