"""A spool knows which transactions are open where its pieces begin, and writes them into their indexes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.log.batches import Batch, marker, record
from tierstate.log.batch import TRANSACTIONAL, iter_batches
from tierstate.log.transaction_index import OpenBefore, TransactionIndexCheck, parse_transaction_index
from tierstate.log.transactions import ABORT
from tierstate.state.offsets import Offset
from tierstate.tail.spool import NO_EPOCH, Spool

ONE = 1


def data(base: int, count: int, producer: int) -> bytes:
    records = [record(at, None, b"value") for at in range(count)]
    return Batch(base, records, attributes=TRANSACTIONAL, producer=producer).bytes


def abort(base: int, producer: int) -> bytes:
    return marker(base, producer, ABORT)


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path)


def difference(spool: Spool, log: bytes) -> str | None:
    """Return how the first piece's index differs from the markers in its log, as a copy checks it."""
    piece = spool.pieces[0]
    check = TransactionIndexCheck(piece.transaction_index(), piece.base, piece.before, "index", log="log")
    for batch in iter_batches(log, source="log"):
        check.add(batch, log, 0)
    return check.difference()


def test_a_spool_that_begins_inside_the_first_batch_of_the_log_knows_that_nothing_was_open_before(spool: Spool) -> None:
    log = data(0, 4, ONE) + abort(4, ONE)
    spool.begin(Offset(2), NO_EPOCH, OpenBefore({ONE: Offset(0)}), Offset(5))
    spool.append(log, 0.0)
    spool.roll()
    assert spool.pieces[0].base == 0
    assert difference(spool, log) is None, "the copy would fail for ever"
    assert spool.active.before == OpenBefore({}, complete=True)


def test_while_older_transactions_are_unknown_no_index_says_that_they_ended(spool: Spool) -> None:
    """Kafka's readers stop to look for aborted transactions at a last stable offset above what they read."""
    log = data(72, 1, ONE) + abort(73, ONE)
    spool.begin(Offset(72), NO_EPOCH, OpenBefore(), Offset(80))
    spool.append(log, 0.0)
    spool.roll()
    (entry,) = parse_transaction_index(spool.pieces[0].transaction_index() or b"", "index")
    assert entry.range.first == 72
    assert entry.last_stable_offset == 0, "a transaction that began at 69 may be open, and be aborted later"
    assert difference(spool, log) is None
