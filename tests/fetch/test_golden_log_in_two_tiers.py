"""A real broker's log read across the border of two tiers equals what librdkafka read from the broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fetch.two_tiers import Golden, Row, golden_rows, rows_of
from tests.tiers import few
from tierstate.fetch.piece import Fetched
from tierstate.state.offsets import Offset
from tierstate.state.routing import Isolation, Tier

Make = Callable[..., Golden]
BOTH = (Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED)


def read_all(golden: Golden, start: int, max_bytes: int, isolation: Isolation, tier: Tier = Tier.AUTO) -> list[Fetched]:
    pieces: list[Fetched] = []
    position = start
    while True:
        piece = golden.reader.fetch("t", 0, position, max_bytes=max_bytes, isolation=isolation, tier=tier)
        if not piece.data:
            return pieces
        assert piece.next_offset > position
        position = piece.next_offset
        pieces.append(piece)


@pytest.mark.parametrize("isolation", BOTH)
@pytest.mark.parametrize("max_bytes", few([1, 700, 5_000, 1 << 20], [1, 5_000]))
@pytest.mark.parametrize("case", few(["transactions", "epochs", "gzip", "zstd"], ["transactions", "epochs"]))
def test_pieces_of_any_size_make_the_whole_log(
    golden_log: Make, case: str, max_bytes: int, isolation: Isolation
) -> None:
    golden = golden_log(case)
    golden.local.local_start = (golden.folder.bases[-2] + golden.folder.bases[-1]) // 2
    pieces = read_all(golden, 0, max_bytes, isolation)
    assert rows_of(pieces) == golden_rows(case, isolation)
    assert {piece.tier for piece in pieces} == {Tier.LOCAL, Tier.REMOTE}


@pytest.mark.parametrize("foreign", few([False, True], [False]))
@pytest.mark.parametrize("isolation", few(BOTH, [Isolation.READ_COMMITTED]))
def test_every_offset_is_a_start(golden_log: Make, isolation: Isolation, foreign: bool) -> None:
    golden = golden_log("transactions", foreign=foreign, chunk_bytes=3_000)
    golden.local.local_start = golden.folder.bases[-1] - 3
    expected = golden_rows("transactions", isolation)
    end = golden.folder.end()
    for start in range(end):
        position, read = start, list[Row]()
        while not read and position < end:
            piece = golden.reader.fetch("t", 0, position, max_bytes=1, isolation=isolation)
            read = rows_of([piece])
            assert piece.next_offset > position
            position = piece.next_offset
        expected_rows = [row for row in expected if row[0] >= start]
        assert read == expected_rows[: len(read)]
        assert bool(read) == bool(expected_rows)


@pytest.mark.extended
@pytest.mark.parametrize("isolation", BOTH)
def test_a_scan_is_exactly_its_range(golden_log: Make, isolation: Isolation) -> None:
    golden = golden_log("transactions")
    golden.local.local_start = golden.folder.bases[-1]
    expected = golden_rows("transactions", isolation)
    end = golden.folder.end()
    for start in range(0, end, 97):
        for stop in (start, start + 1, start + 2, start + 300, end):
            pieces = golden.reader.scan("t", 0, start, min(stop, end), isolation=isolation, piece_bytes=2_000)
            assert rows_of(pieces) == [row for row in expected if start <= row[0] < stop]


def test_records_of_both_tiers_come_from_the_broker_by_default(golden_log: Make) -> None:
    golden = golden_log("transactions")
    assert golden.reader.fetch("t", 0, 0).tier is Tier.LOCAL
    assert golden.reader.fetch("t", 0, 0, tier=Tier.REMOTE).tier is Tier.REMOTE
    assert golden.reader.fetch("t", 0, 0, tier=Tier.PREFER_REMOTE).tier is Tier.REMOTE
    start, end = golden.reader.extent("t", 0, tier=Tier.REMOTE)
    assert (start, end) == (0, golden.folder.bases[-1])
    remote = golden.reader.scan("t", 0, start, end, tier=Tier.REMOTE)
    local = golden.reader.scan("t", 0, start, end, tier=Tier.LOCAL)
    expected = [row for row in golden_rows("transactions", Isolation.READ_COMMITTED) if row[0] < end]
    assert rows_of(remote) == rows_of(local) == expected


def test_a_segment_that_reaches_into_the_local_tier_serves_nothing_of_it(golden_log: Make) -> None:
    golden = golden_log("transactions")
    golden.local.local_start = golden.folder.bases[1] + 20
    piece = golden.reader.fetch("t", 0, golden.folder.bases[1])
    assert (piece.tier, piece.limit) == (Tier.REMOTE, golden.local.local_start)
    assert golden.reader.fetch("t", 0, piece.next_offset).tier is Tier.LOCAL


def test_aborted_ranges_beyond_the_inline_limit_come_from_the_manifest(golden_log: Make) -> None:
    golden = golden_log("transactions", many_aborted=True)
    assert not all(segment.aborted.inline for segment in golden.segments)
    golden.local.local_start = golden.folder.bases[-1]
    records = rows_of(read_all(golden, 0, 4_000, Isolation.READ_COMMITTED))
    assert records == golden_rows("transactions", Isolation.READ_COMMITTED)


def test_an_empty_answer_is_given_only_at_the_end(golden_log: Make) -> None:
    golden = golden_log("transactions")
    end = golden.folder.end()
    piece = golden.reader.fetch("t", 0, end)
    assert (piece.data, piece.next_offset, piece.bounds.high_watermark) == (b"", Offset(end), end)
