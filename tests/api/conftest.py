"""A gateway over a golden partition in two tiers: as an ASGI app, and listening on loopback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.browser import Browser, browser
from tests.api.certificates import certificates
from tests.api.gateways import Call, Running, Tokens, asgi_call
from tests.api.guarded_gateway import BINDINGS, Guarded, flags, relaying_flags
from tests.api.screenshots import console
from tests.api.shop import Shop, shop
from tests.broker.guarded import PASSWORDS
from tests.broker.roles import READER
from tests.broker.test_callers import allow_tokens
from tests.fetch.two_tiers import GOLDEN, Folder, FolderTier, TwoTiers
from tests.scenarios.bound_topics import copy_bound_topics
from tests.scenarios.house import House
from tests.scenarios.test_acls import permit
from tierstate.api.app import create_app
from tierstate.api.open import GatewayServer
from tierstate.api.service import FetchService
from tierstate.fetch.reader import LogReader
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.gateway_settings import Gateway, GatewayAuth
from tierstate.runtime.setting_types import Address
from tierstate.sandbox.kafka import KafkaSandbox
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


@pytest.fixture(scope="module")
def guarded(tls_kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """Yield the gateway ``reader``, with a reader's rights and CreateTokens, and a tiered topic for each binding.
    All topics are copied and trimmed. The gateway takes every kind of login, and keeps no answer about a user."""
    folder = tmp_path_factory.mktemp("rights")
    house = House(tls_kafka, folder / "house", "http")
    authority = Path(tls_kafka.client_config["ssl.ca.location"])
    try:
        house.run("init")
        copy_bound_topics(house, {name: bound for name, (bound, _) in BINDINGS.items()})
        for user in ("guest", "admin"):
            allow_tokens(tls_kafka, "reader", user)
        clients = certificates(folder, "guest", "admin", "nobody")
        running, url = house.as_user("reader", PASSWORDS["reader"]).gateway(*flags(folder, authority, clients))
        for name in BINDINGS:
            permit(house, "operator", READER, f"{house.name}-{name}")
        _, relaying = house.as_user("operator", PASSWORDS["operator"]).gateway(*relaying_flags(authority))
        yield Guarded(house, running, url, relaying, authority, clients)
    finally:
        house.close()


@pytest.fixture(scope="module")
def shop_reader() -> Iterator[Shop]:
    with shop() as opened:
        yield opened


@pytest.fixture(scope="module")
def url(shop_reader: Shop) -> Iterator[str]:
    with console(shop_reader) as address:
        yield address


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("chromium")) as opened:
        opened.width(1280)
        yield opened
