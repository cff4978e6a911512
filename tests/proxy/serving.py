"""A proxy in this process, over a given reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tierstate.broker.control import ClusterDescription
from tierstate.proxy.open import open_proxy
from tierstate.proxy.server import ProxyServer
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.proxy_settings import Proxy
from tierstate.runtime.setting_types import Address
from tierstate.runtime.settings import Settings


@contextmanager
def serving(
    reader: Any,
    cluster: ClusterDescription,
    kafka: Mapping[str, str],
    proxy: Proxy | None = None,
    warn: Callable[..., object] = lambda event, **facts: None,
) -> Iterator[ProxyServer]:
    """Serve on free ports until the block ends; then none of its memory may still be held."""
    free = (proxy or Proxy()).model_copy(update={"listen": Address("127.0.0.1", 0)})
    nodes = {int(node): address for node, address in cluster.addresses.items()}
    with open_proxy(reader, nodes, Settings(kafka=dict(kafka), proxy=free), SystemClock(), warn) as server:
        process = server.process()
        process.start()
        try:
            yield server
        finally:
            process.stop()
            assert process.join(20)
            assert process.failure is None, process.failure
            assert server.budget.used == 0, "memory that nobody gave back"
