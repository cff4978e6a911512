"""Which topics are served is known without brokers too, once a view has them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.api.gateways import MemoryReader
from tierstate.api.credentials import ANYBODY
from tierstate.api.service import FetchService, Need
from tierstate.runtime.clock import ManualClock
from tierstate.runtime.gateway_settings import Gateway, GatewayAuth
from tierstate.state.errors import BrokerUnavailable


class Dark(MemoryReader):
    """No broker has answered since it began; the view has the topic ``t``."""

    def topics(self) -> list[str]:
        raise BrokerUnavailable("no answer")

    def tiered_without_brokers(self, topic: str) -> bool:
        return topic == "t"


@pytest.fixture
def service() -> Iterator[FetchService]:
    made = FetchService(Dark(), Gateway(auth=GatewayAuth(rights="gateway")), ManualClock(), hidden=["hidden"])
    yield made
    made.close()


def test_a_topic_of_the_view_is_served_while_no_broker_has_ever_named_it(service: FetchService) -> None:
    assert asyncio.run(service.permit(ANYBODY, "t", Need.READ)) == "t"


def test_of_a_topic_that_the_view_does_not_have_nobody_says_that_it_is_not_there(service: FetchService) -> None:
    with pytest.raises(BrokerUnavailable):
        asyncio.run(service.permit(ANYBODY, "other", Need.READ))
