"""The gateway lists the tables of the topics that its caller may know."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest

from tests.api.gateways import MemoryReader, StandIn, asgi_call
from tests.twins.manual_clock import ManualClock
from tierstate.api.app import create_app
from tierstate.api.service import FetchService
from tierstate.broker.callers import Rights
from tierstate.broker.sasl import Login
from tierstate.runtime.gateway_settings import Gateway, GatewayAuth


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


@pytest.mark.parametrize(("describe", "shown"), [(True, ["kafka.t"]), (False, [])])
def test_a_user_of_kafka_sees_the_tables_of_topics_that_it_may_describe(describe: bool, shown: list[str]) -> None:
    class Brokers(StandIn):  # type: ignore[misc]
        def rights(self, who: Login | str, topics: Sequence[str]) -> dict[str, Rights]:
            return dict.fromkeys(topics, Rights(describe=describe, read=False))

    settings = Gateway(auth=GatewayAuth(basic=True))
    service = FetchService(MemoryReader(), settings, ManualClock(), callers=Brokers())
    service.tables = lambda: [each | {"ends": []} for each in ROWS]
    with closing(service):
        call = asgi_call(create_app(service))
        answer = call("/v1/tables", headers={"authorization": "Basic YW5uOnB3"})
        assert call("/v1/tables").status_code == 401
    assert [each["table"] for each in answer.json()["tables"]] == shown
