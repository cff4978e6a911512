"""A trimmed broker forgets offsets, times and epochs: readers get the same answers as before the trim."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fetch.two_tiers import Golden, golden_rows
from tests.histories.epoch_cache import end_offset_for
from tierstate.log.batch import iter_batches
from tierstate.state.epochs import LeaderEpoch
from tierstate.state.errors import LineageUnconfirmed
from tierstate.state.routing import Isolation

Make = Callable[..., Golden]


def starts(golden: Golden) -> list[int]:
    """Return starts of the local tier: the border of each segment, and the offsets next to it."""
    bases = golden.folder.bases
    return sorted({0, *(base + beside for base in bases[1:] for beside in (-1, 0, 1) if base + beside <= bases[-1])})


def times_of(golden: Golden, case: str) -> list[tuple[int, int]]:
    """Return offset and time of every record and marker: a broker's answer may be either."""
    logs = [(base, golden.folder.file(base, ".log")) for base in golden.folder.bases]
    batches = (batch for base, log in logs for batch in iter_batches(log, source=str(base)))
    markers = [(batch.base_offset, batch.max_timestamp) for batch in batches if batch.is_control]
    return sorted([(row[0], row[1]) for row in golden_rows(case, Isolation.READ_UNCOMMITTED)] + markers)


def test_an_epoch_ends_where_it_ended_before_the_trim(golden_log: Make) -> None:
    golden = golden_log("epochs")
    whole, end = list(golden.local.epochs), golden.folder.end()
    assert len(whole) > 2
    for start in starts(golden):
        golden.local.delete_records(start)
        for epoch in range(whole[-1][0] + 2):
            reply = golden.reader.remote_epoch_end("t", 0, LeaderEpoch(epoch))
            answer = end_offset_for(golden.local.epochs, end, epoch) if reply is None else (reply.epoch, reply.end)
            assert answer == end_offset_for(whole, end, epoch), (start, epoch)


def test_a_trim_does_make_the_broker_forget_epochs(golden_log: Make) -> None:
    """Otherwise the test above would hold without our code."""
    golden = golden_log("epochs")
    whole, end = list(golden.local.epochs), golden.folder.end()
    golden.local.delete_records(golden.folder.bases[-1])
    assert any(
        end_offset_for(golden.local.epochs, end, epoch) != end_offset_for(whole, end, epoch)
        for epoch in range(whole[-1][0])
    )


def test_the_epoch_of_an_offset_is_that_of_its_batch(golden_log: Make) -> None:
    golden = golden_log("epochs")
    whole = list(golden.local.epochs)
    golden.local.delete_records(golden.folder.bases[-1])
    for offset in range(golden.folder.bases[-1]):
        expected = [epoch for epoch, start in whole if start <= offset][-1]
        assert golden.reader.epoch_at("t", 0, offset) == expected


@pytest.mark.parametrize("case", ["transactions", "epochs"])
def test_the_first_of_a_time_is_the_logs_own_below_the_local_start(golden_log: Make, case: str) -> None:
    golden = golden_log(case)
    rows = times_of(golden, case)
    times = sorted({time for _, time in rows})
    for start in starts(golden):
        golden.local.delete_records(start)
        for time in [times[0] - 1, *times[:: max(1, len(times) // 9)], times[-1], times[-1] + 1]:
            expected = next((row for row in rows if row[1] >= time and row[0] < start), None)
            assert golden.reader.first_remote("t", 0, time) == expected, (start, time)


@pytest.mark.parametrize("case", ["transactions", "epochs", "zstd"])
def test_the_latest_time_is_found_after_the_broker_lost_it(golden_log: Make, case: str) -> None:
    golden = golden_log(case)
    rows = times_of(golden, case)
    for start in starts(golden):
        golden.local.delete_records(start)
        here = max((time for offset, time in rows if offset >= start), default=-1)
        below = [(time, -offset) for offset, time in rows if offset < start and time >= here]
        latest = max(below, default=None)
        expected = None if latest is None else (-latest[1], latest[0])
        assert golden.reader.latest_remote("t", 0, here) == expected, start


@pytest.mark.extended
def test_a_marker_can_be_the_first_or_the_latest_of_a_time(golden_log: Make) -> None:
    """Otherwise the tests above would hold without the marker."""
    golden = golden_log("transactions")
    rows = times_of(golden, "transactions")
    records = {row[0] for row in golden_rows("transactions", Isolation.READ_UNCOMMITTED)}
    golden.local.delete_records(golden.folder.bases[-1])
    firsts = [golden.reader.first_remote("t", 0, time) for _, time in rows]
    assert any(row is not None and row[0] not in records for row in firsts)


def test_nothing_is_answered_from_what_may_be_a_lost_branch(golden_log: Make) -> None:
    golden = golden_log("epochs")
    last = golden.local.epochs[-1][0]
    golden.local.delete_records(golden.folder.bases[-1])
    golden.local.elect(last + 5, end=golden.folder.bases[-1] + 1)
    golden.local.epochs = golden.local.epochs[-1:]  # the broker confirms no earlier epoch
    for ask in (
        lambda: golden.reader.first_remote("t", 0, 0),
        lambda: golden.reader.latest_remote("t", 0, 0),
        lambda: golden.reader.remote_epoch_end("t", 0, LeaderEpoch(0)),
    ):
        with pytest.raises(LineageUnconfirmed):
            ask()
