"""The rights of callers are asked for again in time, and a proof that is over or refused gives no rights."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from contextlib import closing

import pytest

from tests.api.gateways import StandIn
from tests.broker.guarded import unsigned_token
from tests.twins.manual_clock import ManualClock
from tierstate.api import rights
from tierstate.api.credentials import basic, relayed
from tierstate.api.problems import NotAuthenticated
from tierstate.api.rights import CallerRights
from tierstate.broker.callers import Rights
from tierstate.broker.sasl import Login
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.pool import Pool
from tierstate.state.errors import AccessDenied, BrokerUnavailable


class Brokers(StandIn):  # type: ignore[misc]
    """Brokers that accept every token, unless they are ``away``."""

    def __init__(self) -> None:
        self.asked, self.away = list[Login | str](), False

    def rights(self, who: Login | str, topics: Sequence[str]) -> dict[str, Rights]:
        self.asked.append(who)
        if self.away:
            raise BrokerUnavailable("as one that is away")
        return dict.fromkeys(topics, Rights(describe=True, read=True))


def test_a_token_is_shown_again_after_the_caches_age_and_never_after_its_own_end() -> None:
    clock, brokers = ManualClock(), Brokers()
    with closing(Pool("test-rights", 1)) as pool:
        callers = CallerRights(brokers, pool, clock, 60.0, by_kafka=True)

        def may_read(*, for_s: float) -> bool:
            caller = relayed(unsigned_token("ann", exp=start + for_s), "sub")
            return asyncio.run(callers.of(caller, ["t"]))["t"].read

        start = clock.now_ms() / 1000
        assert all(may_read(for_s=100) for _ in range(3))
        assert len(brokers.asked) == 1
        clock.advance(59)
        brokers.away = True
        assert may_read(for_s=100)
        clock.advance(1)
        with pytest.raises(BrokerUnavailable):
            may_read(for_s=100)
        brokers.away = False
        assert may_read(for_s=100)
        clock.advance(40)  # with 20 s of the cache's age to come
        with pytest.raises(NotAuthenticated, match="expired"):
            may_read(for_s=100)
        assert len(brokers.asked) == 3


def test_answers_that_are_remembered_are_bounded_and_the_rest_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rights, "REMEMBERED", 3)
    brokers = Brokers()
    with closing(Pool("test-rights", 1)) as pool:
        caller_rights = CallerRights(brokers, pool, ManualClock(), 60.0, by_kafka=True)
        callers = [relayed(unsigned_token(name), "sub") for name in ("ann", "bob", "ann")]
        for caller in callers:
            assert asyncio.run(caller_rights.of(caller, ["t"]))["t"].read
    assert len(caller_rights.answers.cache) == 3
    assert len(brokers.asked) == 3


def test_a_wrong_password_is_refused_also_where_no_topic_is_asked_about() -> None:
    class Nobody(StandIn):  # type: ignore[misc]
        def rights(self, who: Login | str, topics: Sequence[str]) -> dict[str, Rights]:
            raise AccessDenied("as a broker would")

    pool = Pool("test-rights", 1)
    caller = basic("PLAIN", base64.b64encode(b"ann:wrong").decode())
    for by_kafka in (True, False):
        callers = CallerRights(Nobody(), pool, SystemClock(), 5.0, by_kafka=by_kafka)
        with pytest.raises(NotAuthenticated):
            asyncio.run(callers.of(caller, []))
    pool.close()
