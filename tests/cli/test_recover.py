"""`tierstate recover` asks every agent it knows of before it writes."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tierstate.app.operating.recovery import require_no_agent, require_silent
from tierstate.cli.recover import is_paused
from tierstate.rules.recovery import ArchivedPartition, plan_partitions
from tierstate.state.errors import Fenced
from tierstate.state.facts import OperatorOrder, OrderKind
from tierstate.state.ids import FactId, TopicId, TopicIdPartition
from tierstate.state.offsets import Offset, TimestampMs


class Unhealthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(503)

    def log_message(self, format: str, *args: object) -> None:
        """Write no line for a request."""


def test_an_agent_that_answers_anything_at_all_is_one_that_runs() -> None:
    server = HTTPServer(("127.0.0.1", 0), Unhealthy)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    address = f"127.0.0.1:{server.server_port}"
    try:
        with pytest.raises(Fenced, match="stop every agent") as refused:
            require_silent([address])
        assert address in str(refused.value)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    require_silent([address, "not an address"])


def test_an_address_without_an_answer_is_silent() -> None:
    with socket.socket() as held:  # bound, and not listening: there is no answer
        held.bind(("127.0.0.1", 0))
        require_silent([f"127.0.0.1:{held.getsockname()[1]}"])


class Measured(Unhealthy):
    """A server with metrics that is no agent."""

    page = b""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.page if self.path == "/metrics" else b"")


class AnAgent(Measured):
    page = b"# TYPE tierstate_remote_copy_lag_segments gauge\n"


@pytest.mark.parametrize("handler", [AnAgent, Measured, Unhealthy])
def test_only_an_agent_counts_as_an_agent_at_its_usual_address(handler: type[Unhealthy]) -> None:
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        if handler is AnAgent:
            with pytest.raises(Fenced, match="stop every agent"):
                require_no_agent([f"127.0.0.1:{server.server_port}"])
        else:
            require_no_agent([f"127.0.0.1:{server.server_port}"])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


PAUSE, RESUME, DELETE = OrderKind.PAUSE, OrderKind.RESUME, OrderKind.DELETE_RECORDS


@pytest.mark.parametrize(
    ("archived", "paused"),
    [
        ([], False),
        ([PAUSE], True),
        ([PAUSE, RESUME], False),
        ([PAUSE, RESUME, PAUSE], True),
        ([PAUSE, DELETE], True),
        ([DELETE], False),
        ([PAUSE, OrderKind.DISABLE_KEEP], False),
    ],
)
def test_recover_says_that_a_partition_is_paused_again_by_the_newest_order_in_the_archive(
    archived: list[OrderKind], paused: bool
) -> None:
    partition = TopicIdPartition(TopicId("EYPlcc37RSSYIicEsnpNGQ"), 0)
    orders = [
        OperatorOrder(
            partition,
            FactId.of(bytes(15) + bytes([at])),
            kind,
            Offset(7) if kind is DELETE else None,
            False,
            "ops",
            TimestampMs(at),
        )
        for at, kind in enumerate(archived)
    ]
    known = ArchivedPartition(partition, standing=tuple(reversed(orders)))
    (plan,) = plan_partitions([], {partition: known}, {})
    assert is_paused(plan) == paused
