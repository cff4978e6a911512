"""Memory that all connections share: a client that takes none of its reserved bytes loses them to refused clients."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from operator import methodcaller
from typing import Any

from tierstate.proxy.budget import STALLED_S, Budget

SIZE = 8 << 20
READS = 6 << 20
"""The share of the budget for reads."""


@dataclass(eq=False)
class Client:
    stalled_s: float
    address: str = "client:1"
    aborted: bool = False

    def abort(self) -> None:
        self.aborted = True


def client(stalled_s: float) -> Any:
    """Return a stand-in for the `Peer` that answers are sent to."""
    return Client(stalled_s)


def closed(*clients: Any) -> list[bool]:
    """Return which clients are closed when one more is refused; they are being sent all that reads may have."""
    budget = Budget(SIZE, methodcaller("abort"))
    with ExitStack() as sending:
        assert budget.for_a_read(READS)
        for each in clients:
            sending.enter_context(budget.sent_to(each))
        assert not budget.for_a_read(1)
    return [each.aborted for each in clients]


def test_the_client_that_has_taken_nothing_for_longest_is_closed_alone() -> None:
    assert closed(client(STALLED_S), client(STALLED_S + 1), client(0)) == [False, True, False]


def test_a_client_that_takes_a_little_is_not_closed() -> None:
    assert closed(client(STALLED_S - 0.1), client(0)) == [False, False]


def test_no_client_is_closed_without_pending_data_or_while_there_is_memory() -> None:
    idle = client(1_000)
    budget = Budget(SIZE, methodcaller("abort"))
    with budget.sent_to(idle):
        assert budget.for_a_read(READS)
    assert not budget.for_a_read(1)
    assert not idle.aborted


def test_each_refusal_closes_another_one() -> None:
    clients = [client(STALLED_S + number) for number in range(3)]
    budget = Budget(SIZE, methodcaller("abort"))
    assert budget.for_a_read(READS)
    with ExitStack() as sending:
        for each in clients:
            sending.enter_context(budget.sent_to(each))
        for left in (2, 1, 0, 0):
            assert not budget.for_a_read(1)
            assert sum(not each.aborted for each in clients) == left
