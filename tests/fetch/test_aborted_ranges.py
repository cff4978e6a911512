"""A Fetch answer's aborted transactions become ranges that hide exactly what Kafka's consumer would hide."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tierstate.fetch.local import abort_markers, closed_ranges
from tierstate.log.batch import iter_batches
from tierstate.log.transaction_index import parse_transaction_index
from tierstate.log.transactions import ABORT, marker_type
from tierstate.state.offsets import Offset

GOLDEN = Path(__file__).parents[1] / "data" / "kafka-logs"


def test_abort_markers_of_a_real_log_are_those_its_transaction_index_names() -> None:
    count = 0
    for file in sorted((GOLDEN / "transactions" / "gold-s7b-transactions-0").glob("*.log")):
        data = file.read_bytes()
        headers = list(iter_batches(data, source=file.name))
        index = file.with_suffix(".txnindex")
        entries = parse_transaction_index(index.read_bytes(), index.name) if index.exists() else []
        expected = sorted((entry.range.last, entry.range.producer_id) for entry in entries)
        assert sorted((offset, producer) for producer, offset in abort_markers(data, headers, "f")) == expected
        commits = [header for header in headers if header.is_control and marker_type(header, data, source="f") != ABORT]
        count += len(expected) + len(commits)
    assert count > 20


@st.composite
def logs(draw: st.DrawFn) -> list[tuple[int, str]]:
    """Draw batches of one record each, as (producer id, kind). Every transaction is decided at the end."""
    log: list[tuple[int, str]] = []
    open_producers: set[int] = set()
    for _ in range(draw(st.integers(1, 40))):
        producer = draw(st.integers(1, 3))
        kind = draw(st.sampled_from(["data", "data", "plain", "commit", "abort"]))
        if kind in ("commit", "abort") and producer not in open_producers:
            continue
        if kind == "data":
            open_producers.add(producer)
        elif kind != "plain":
            open_producers.discard(producer)
        log.append((producer, kind))
    log += [(producer, draw(st.sampled_from(["commit", "abort"]))) for producer in sorted(open_producers)]
    return log


def aborted_transactions(log: list[tuple[int, str]]) -> list[tuple[int, int, int]]:
    """Return (producer id, first, last) of the aborted transactions, as the broker's transaction index has them."""
    first: dict[int, int] = {}
    transactions = []
    for offset, (producer, kind) in enumerate(log):
        if kind == "data":
            first.setdefault(producer, offset)
        elif kind in ("commit", "abort"):
            began = first.pop(producer)
            if kind == "abort":
                transactions.append((producer, began, offset))
    return transactions


def as_kafka_consumes(log: list[tuple[int, str]], listed: list[tuple[int, int]], start: int, stop: int) -> set[int]:
    """Return the offsets of one answer that a read_committed consumer gets (`CompletedFetch.nextFetchedRecord`)."""
    waiting = sorted(listed, key=lambda each: each[1])
    aborting: set[int] = set()
    shown = set()
    for offset in range(start, stop):
        producer, kind = log[offset]
        while waiting and waiting[0][1] <= offset:
            aborting.add(waiting.pop(0)[0])
        if kind == "abort":
            aborting.discard(producer)
        elif kind == "plain" or (kind == "data" and producer not in aborting):
            shown.add(offset)
    return shown


@given(logs(), st.data())
def test_ranges_hide_what_kafkas_consumer_hides_however_an_answer_cuts_transactions(
    log: list[tuple[int, str]], data: st.DataObject
) -> None:
    if not log:
        return
    start = data.draw(st.integers(0, len(log) - 1))
    stop = data.draw(st.integers(start + 1, len(log)))
    upper = data.draw(st.integers(stop, len(log)))  # the broker's bound is rough: it may list later transactions
    listed = [
        (producer, Offset(first))
        for producer, first, last in aborted_transactions(log)
        if last >= start and first < upper
    ]
    markers = [
        (producer, Offset(at)) for at, (producer, kind) in enumerate(log) if kind == "abort" and start <= at < stop
    ]

    ranges = closed_ranges(listed, markers, Offset(stop - 1))

    shown = {
        offset
        for offset in range(start, stop)
        if log[offset][1] == "plain"
        or (
            log[offset][1] == "data"
            and not any(range.producer_id == log[offset][0] and range.first <= offset <= range.last for range in ranges)
        )
    }
    truth = aborted_transactions(log)
    assert shown == as_kafka_consumes(log, [(p, int(o)) for p, o in listed], start, stop)
    assert shown == {
        at
        for at in range(start, stop)
        if log[at][1] == "plain"
        or (log[at][1] == "data" and not any(p == log[at][0] and f <= at <= last for p, f, last in truth))
    }
