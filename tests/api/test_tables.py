"""The gateway lists the tables of the topics that its caller may know."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from tests.api.gateways import MemoryReader, asgi_call
from tests.twins.manual_clock import ManualClock
from tierstate.api.app import create_app
from tierstate.api.service import FetchService
from tierstate.runtime.gateway_settings import Gateway


def row(table: str, topic: str | None, **more: Any) -> dict[str, Any]:
    fields = dict.fromkeys(("rows", "files", "lag", "lag_seconds", "last_commit", "reason"))
    return {"table": table, "topic": topic, **fields, "state": "stopped", **more}


ROWS = [row("kafka.t", "t", rows=3), row("kafka.other", "other"), row("kafka.unread", None, reason="is missing")]


@pytest.mark.parametrize(
    ("patterns", "shown"),
    [((), ["kafka.t", "kafka.other", "kafka.unread"]), (("t",), ["kafka.t"]), (("none",), [])],
)
def test_tables_of_topics_that_are_not_served_are_not_listed(patterns: tuple[str, ...], shown: list[str]) -> None:
    service = FetchService(MemoryReader(), Gateway(topics=patterns), ManualClock())
    service.tables = lambda: [each | {"ends": []} for each in ROWS]
    with closing(service):
        answer = asgi_call(create_app(service))("/v1/tables")
        assert answer.status_code == 200
        rows = answer.json()["tables"]
    assert [each["table"] for each in rows] == shown
    assert all(each in ROWS for each in rows), "what the answer does not document is left out"
