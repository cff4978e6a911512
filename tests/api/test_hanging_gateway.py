"""A gateway whose event loop is blocked answers no call, and the management port reports it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.api.gateways import RECORDS, MemoryReader
from tests.scenarios.house import eventually
from tests.twins.manual_clock import ManualClock
from tierstate.api.open import GatewayServer
from tierstate.api.service import FetchService
from tierstate.app.looking.watching import longest_silence
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.gateway_settings import Gateway
from tierstate.runtime.setting_types import Address
from tierstate.runtime.settings import Settings
from tierstate.runtime.watchdog import Supervisor, Watchdog

LIMIT_S = longest_silence(Settings())["gateway"]


class BlockingService(FetchService):
    """Blocks the loop until `go_on` is set, as a route with a bug would."""

    def __init__(self) -> None:
        settings = Gateway(listen=Address("127.0.0.1", 0))
        super().__init__(MemoryReader(), settings, SystemClock())
        self.blocked, self.go_on = threading.Event(), threading.Event()

    def serves(self, topic: str) -> bool:
        self.blocked.set()
        assert self.go_on.wait(30)
        return super().serves(topic)


class Running:
    def __init__(self) -> None:
        self.clock, self.service = ManualClock(), BlockingService()
        self.watchdog = Watchdog(self.clock, {"gateway": LIMIT_S}, Supervisor({}), lambda event, **facts: None)
        self.server = GatewayServer(self.service, self.service.settings)
        with self.watchdog:
            self.process = self.server.process()
        self.process.start()


@pytest.fixture
def running() -> Iterator[Running]:
    gateway = Running()
    yield gateway
    gateway.service.go_on.set()
    gateway.process.stop()
    assert gateway.process.join(30)
    gateway.server.close()


def test_a_gateway_that_is_asked_nothing_goes_round(running: Running) -> None:
    eventually(lambda: httpx.get(f"{running.server.url}/").status_code == 200)
    for _ in range(3):
        running.clock.advance(LIMIT_S)
        eventually(lambda: running.watchdog.hangs() == [])


def test_a_gateway_whose_loop_is_blocked_hangs_until_it_goes_on(running: Running) -> None:
    eventually(lambda: httpx.get(f"{running.server.url}/").status_code == 200)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(httpx.get, f"{running.server.url}{RECORDS}?offset=0", timeout=30)
        assert running.service.blocked.wait(30)
        running.clock.advance(LIMIT_S)
        assert [hang.loop for hang in running.watchdog.hangs()] == ["gateway"]
        running.service.go_on.set()
        assert answer.result().status_code
    eventually(lambda: running.watchdog.hangs() == [])
