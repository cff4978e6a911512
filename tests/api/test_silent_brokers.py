"""Once a view has the served topics, they are known without brokers; a view that is behind denies no topic."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.api.gateways import MemoryReader
from tests.twins.manual_clock import ManualClock
from tierstate.api.credentials import ANYBODY
from tierstate.api.service import FetchService
from tierstate.runtime.gateway_settings import Gateway, GatewayAuth
from tierstate.state.errors import BrokerUnavailable, ViewBehind


class Dark(MemoryReader):
    """A reader that has had no answer of a broker since it began; the view has the topic ``t``."""

    def topics(self) -> list[str]:
        raise BrokerUnavailable("no answer")

    def tiered_without_brokers(self, topic: str) -> bool:
        return topic == "t"


@pytest.fixture
def service() -> Iterator[FetchService]:
    fetch_service = FetchService(Dark(), Gateway(auth=GatewayAuth(rights="gateway")), ManualClock(), hidden=["hidden"])
    yield fetch_service
    fetch_service.close()


def test_a_topic_of_the_view_is_served_while_no_broker_has_ever_named_it(service: FetchService) -> None:
    assert asyncio.run(service.permit(ANYBODY, "t", read=True)) == "t"


def test_a_topic_that_the_view_lacks_is_not_called_unknown(service: FetchService) -> None:
    with pytest.raises(BrokerUnavailable):
        asyncio.run(service.permit(ANYBODY, "other", read=True))


class Behind(MemoryReader):
    """A reader that has just begun: its view has not read that ``t`` is tiered."""

    def topics(self) -> list[str]:
        return []

    def is_tiered(self, topic: str) -> bool:
        raise ViewBehind("it is being read")


def test_a_tiered_topic_is_not_called_unknown_while_the_view_is_read() -> None:
    service = FetchService(Behind(), Gateway(auth=GatewayAuth(rights="gateway")), ManualClock())
    with pytest.raises(ViewBehind):
        asyncio.run(service.permit(ANYBODY, "t", read=True))
    service.close()
