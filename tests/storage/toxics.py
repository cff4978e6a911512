"""A real toxiproxy before a real server: connections that are reset, hang, trickle, or end early."""

from __future__ import annotations

from types import TracebackType

import httpx

from tests.servers.store_server import StoreServer


class Toxics:
    """One proxy of a running toxiproxy. Use as a context manager; ``endpoint`` leads through it."""

    def __init__(self, server: StoreServer, upstream: str, name: str) -> None:
        self._client = httpx.Client(base_url=server.url, timeout=10, trust_env=False)
        self._name, self._toxics = name, 0
        proxy = {"name": name, "listen": "127.0.0.1:0", "upstream": upstream.removeprefix("http://")}
        answer = self._client.post("/proxies", json=proxy).raise_for_status()
        self.endpoint = f"http://{answer.json()['listen']}"

    def __enter__(self) -> Toxics:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._client.delete(f"/proxies/{self._name}").raise_for_status()
        self._client.close()

    def add(self, kind: str, stream: str, **attributes: int) -> None:
        """``stream``: upstream (our bytes) or downstream (the answer's). It affects open connections too."""
        toxic = {"name": f"toxic-{self._toxics}", "type": kind, "stream": stream, "attributes": attributes}
        self._client.post(f"/proxies/{self._name}/toxics", json=toxic).raise_for_status()
        self._toxics += 1
