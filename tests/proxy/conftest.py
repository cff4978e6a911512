"""A proxy in this process, before a broker that answers as a test wants."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.broker.guarded import self_signed
from tests.proxy.fake_broker import FakeBroker
from tests.proxy.serving import serving
from tierstate.broker.control import ClusterDescription
from tierstate.proxy.server import ProxyServer
from tierstate.runtime.proxy_settings import Proxy, ProxyTls
from tierstate.state.ids import BrokerId


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    made = FakeBroker()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture(params=["plain", "tls"])
def proxy(broker: FakeBroker, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ProxyServer]:
    """A proxy whose reader knows no topic."""
    where = f"127.0.0.1:{broker.port}"
    reader: Any = SimpleNamespace(topic_names=dict)
    cluster = ClusterDescription("x", (BrokerId(1),), {BrokerId(1): ("127.0.0.1", broker.port)})
    identity = self_signed(tmp_path)[1] if request.param == "tls" else None
    settings = Proxy(memory=2 << 20, tls=ProxyTls(certificate=identity, key=identity))
    with serving(reader, cluster, {"bootstrap.servers": where}, settings) as server:
        yield server
