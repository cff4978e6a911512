"""A gateway over a golden partition in two tiers: as an ASGI app, and listening on loopback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.gateways import Call, Running, Tokens, asgi_call
from tests.fetch.two_tiers import GOLDEN, Folder, FolderTier, TwoTiers
from tierstate.api.app import create_app
from tierstate.api.open import GatewayServer
from tierstate.api.service import FetchService
from tierstate.fetch.reader import LogReader
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.gateway_settings import Gateway, GatewayAuth
from tierstate.runtime.setting_types import Address
from tierstate.state.ids import TopicId, TopicIdPartition
from tierstate.storage.memory import MemoryStore


@dataclass
class Log:
    """Topic ``t``, one partition: all but the last segment copied."""

    folder: Folder
    local: FolderTier
    reader: LogReader
    tiers: TwoTiers


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    def auth(text: str) -> GatewayAuth:
        path = tmp_path / "tokens"
        path.write_text(text)
        path.chmod(0o600)
        return GatewayAuth(tokens=path, rights="gateway")

    return auth


@pytest.fixture
def golden() -> Iterator[Callable[..., Log]]:
    logs: list[Log] = []

    def make(case: str = "transactions", copies: int | None = None) -> Log:
        folder = Folder(next(path for path in (GOLDEN / case).iterdir() if path.is_dir()))
        place = TopicIdPartition(TopicId.of(b"golden-topic-id!"), 0)
        tiers = TwoTiers(place, "t", MemoryStore(SystemClock()))
        tiers.copy_all(folder, copies)
        local = FolderTier(folder, place, "t")
        logs.append(Log(folder, local, tiers.reader(local), tiers))
        return logs[-1]

    yield make
    for log in logs:
        log.tiers.view.close()


@pytest.fixture
def log(golden: Callable[..., Log]) -> Log:
    """Return a log of which each tier has a part of its own: the broker begins in the last segment."""
    two_tier_log = golden()
    two_tier_log.local.local_start = two_tier_log.folder.bases[-1]
    return two_tier_log


@pytest.fixture
def service(log: Log) -> Iterator[FetchService]:
    fetch_service = FetchService(log.reader, Gateway(), SystemClock(), hidden=("_tier-state",))
    yield fetch_service
    fetch_service.close()


@pytest.fixture
def call(service: FetchService) -> Call:
    """Return a function that makes one GET without a socket."""
    return asgi_call(create_app(service))


@pytest.fixture
def serve() -> Iterator[Callable[..., Running]]:
    """Yield a function that serves a reader on loopback."""
    running: list[Running] = []

    def start(reader: Any, **settings: Any) -> Running:
        gateway = Gateway(listen=Address("127.0.0.1", 0), **settings)
        service = FetchService(reader, gateway, SystemClock(), hidden=("_tier-state",))
        server = GatewayServer(service, gateway)
        process = server.process()
        process.start()
        running.append(Running(server, process, service, httpx.Client(base_url=server.url, timeout=60)))
        return running[-1]

    yield start
    for instance in running:
        instance.close()
