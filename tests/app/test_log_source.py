"""An agent by Fetch starts only with settings that `tierstate check` accepts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from tests.twins.memory_broker import MemoryBroker
from tierstate.app.opening.connection import Connection
from tierstate.app.operating.log_source import fetch_source, leaders_that_fence
from tierstate.runtime.settings import Settings
from tierstate.state.errors import InvalidRequest


def connection_of(**agent: object) -> Connection:
    """Return a connection to a cluster whose topic has two partitions."""
    broker = MemoryBroker()
    broker.create_topic("orders", partitions=2)
    settings = Settings.model_validate({"tiering": {"include": ["orders"]}, "agent": {"source": "fetch", **agent}})
    parts = {"control": broker, "broker": SimpleNamespace(control=broker, raw=None)}
    topic = SimpleNamespace(mapped_partitions=1)
    return cast(Connection, SimpleNamespace(settings=settings, topic=topic, kafka={}, clock=None, **parts))


@pytest.mark.parametrize(
    ("agent", "why"),
    [({"spool": 2 * 1024**2 - 1}, "agent.spool is too small"), ({"log_dirs": ["/data"]}, "an agent reads one of both")],
    ids=["spool", "folders"],
)
def test_an_agent_and_check_refuse_the_same_settings(agent: dict[str, object], why: str) -> None:
    connection = connection_of(**agent)
    with pytest.raises(InvalidRequest, match=why):
        leaders_that_fence(connection)
    with pytest.raises(InvalidRequest, match=why), fetch_source(connection):
        pass
