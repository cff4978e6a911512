"""A call that was made twice before gets the same answer without new work, and only by the caller's own rights."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from tests.api.conftest import Log
from tests.api.gateways import RECORDS, Call, Running, asgi_call
from tierstate.api import kept_answers
from tierstate.api.answer_memory import AnswerMemory
from tierstate.api.app import create_app
from tierstate.api.kept_answers import KeptAnswers
from tierstate.api.media import ARROW, BATCHES, JSON, KAFKA_BINARY, NDJSON, PARQUET
from tierstate.api.service import RENEWED_S, FetchService
from tierstate.broker.callers import Rights
from tierstate.broker.sasl import Login
from tierstate.fetch.logical import BOUNDS_AGE_S
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.gateway_settings import Gateway, GatewayAuth
from tierstate.state.errors import BrokerUnavailable, Throttled
from tierstate.state.offsets import Offset, OffsetRange
from tierstate.state.routing import Isolation, ReadRemote, Tier

FORMS = (NDJSON, KAFKA_BINARY, JSON, ARROW, PARQUET)


def alone(service: FetchService) -> None:
    """Close all pools: none has a thread afterwards."""
    for pool in (service.pools.remote, service.pools.local, service.pools.metadata, service.pools.decoding):
        pool.close()


@pytest.mark.parametrize("coding", ["identity", "gzip", "zstd"])
@pytest.mark.parametrize("media_type", FORMS)
def test_a_third_equal_call_is_answered_without_a_thread(
    service: FetchService, call: Call, media_type: str, coding: str
) -> None:
    query: dict[str, Any] = {"offset": "0", "headers": {"accept-encoding": coding}}
    first = call(RECORDS, media_type, **query)
    assert service.memory.kept_bytes == 0, "once is not twice"
    call(RECORDS, media_type, **query)
    alone(service)
    again = call(RECORDS, media_type, **query)
    assert (again.status_code, again.content, again.headers) == (200, first.content, first.headers)
    assert service.memory.used == 0
    assert call(RECORDS, media_type, offset="1").status_code == 503, "another one was not kept"


def test_calls_that_differ_are_answered_differently(log: Log, call: Call) -> None:
    """Each call is made three times, so that the last answer was kept; a gateway that keeps nothing agrees."""
    cases = [
        {"offset": offset, "isolation_level": isolation, "max_bytes": size, "encoding": encoding, **more}
        for offset, isolation, size, encoding, more in product(
            ("0", "1", "450"),
            ("read_committed", "read_uncommitted"),
            ("1", "5000"),
            ("utf8", "base64"),
            ({}, {"max_records": "3"}),
        )
    ]
    for _ in range(2):
        for case in cases:
            call(RECORDS, NDJSON, **case)
    for case in cases:
        fresh = asgi_call(create_app(FetchService(log.reader, Gateway(), SystemClock())))
        kept, expected = call(RECORDS, NDJSON, **case), fresh(RECORDS, NDJSON, **case)
        assert (kept.content, kept.headers) == (expected.content, expected.headers)


@pytest.mark.parametrize("media_type", [BATCHES, NDJSON])
def test_a_call_that_is_refused_is_refused_whatever_is_kept(
    service: FetchService, call: Call, monkeypatch: pytest.MonkeyPatch, media_type: str
) -> None:
    for _ in range(3):
        assert call(RECORDS, media_type, offset="0").status_code == 200
    monkeypatch.setattr(service, "serves", lambda topic: False)
    assert call(RECORDS, media_type, offset="0").status_code == 404


class Brokers:
    """Brokers that let Ann read and Bob describe; other users have no rights."""

    def rights(self, login: Login, topics: Sequence[str]) -> dict[str, Rights]:
        return dict.fromkeys(topics, Rights(describe=login.user in ("ann", "bob"), read=login.user == "ann"))

    def rights_of(self, user: str, topics: Sequence[str]) -> dict[str, Rights]:
        raise AssertionError


@pytest.mark.parametrize("media_type", [BATCHES, NDJSON])
def test_no_caller_reads_by_the_rights_of_an_earlier_caller(log: Log, media_type: str) -> None:
    settings = Gateway(auth=GatewayAuth(basic=True))
    with closing(FetchService(log.reader, settings, SystemClock(), asking=Brokers())) as service:
        call = asgi_call(create_app(service))

        def status(user: str) -> int:
            login = {"authorization": "Basic " + b64encode(f"{user}:secret".encode()).decode()}
            return call(RECORDS, media_type, headers=login, offset="0").status_code

        assert [status("ann") for _ in range(3)] == [200] * 3
        assert (status("bob"), status("eve"), status("ann")) == (403, 404, 200)


def test_the_head_of_what_is_at_hand_says_how_far_the_log_is_now(log: Log, call: Call) -> None:
    query: dict[str, Any] = {"offset": "0", "tier": "remote"}
    before = [call(RECORDS, BATCHES, **query) for _ in range(3)][-1]
    log.local.high_watermark += 7
    log.reader.renew("t", 0, 0, isolation=Isolation.READ_COMMITTED, tier=Tier.REMOTE)
    after = call(RECORDS, BATCHES, **query)
    assert after.content == before.content
    assert int(after.headers["x-high-watermark"]) == int(before.headers["x-high-watermark"]) + 7


def test_an_answer_of_batches_is_not_kept_before_the_third_call(service: FetchService, call: Call) -> None:
    for kept in (False, False, True):  # the first call brings them, the second finds them
        call(RECORDS, BATCHES, offset="0")
        assert (service.memory.kept_bytes > 0) == kept


def test_an_answer_at_hand_takes_memory_like_any_other(
    service: FetchService, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_answers, "BESIDE_BYTES", 100)
    size = [len(call(RECORDS, BATCHES, offset="0").content) for _ in range(3)][-1]
    held = service.memory.hold()
    held.resize(service.memory.size - 100 - size)
    assert service.memory.kept_bytes == 100, "where it lies is still known"
    assert call(RECORDS, BATCHES, offset="0").status_code == 429
    held.release()
    assert call(RECORDS, BATCHES, offset="0").status_code == 200
    assert service.memory.used == 0


@pytest.mark.parametrize("media_type", [BATCHES, NDJSON])
def test_a_quota_counts_what_is_kept_as_what_is_read(
    service: FetchService, call: Call, monkeypatch: pytest.MonkeyPatch, media_type: str
) -> None:
    charged = list[int]()
    monkeypatch.setattr(service, "charge", lambda principal, size: charged.append(size))
    sums = list[int]()
    for _ in range(4):
        call(RECORDS, media_type, offset="0")
        sums.append(sum(charged))
        charged.clear()
    assert len(set(sums)) == 1
    assert sums[0] > 0


def test_answers_from_the_broker_are_not_kept(service: FetchService, call: Call, log: Log) -> None:
    for _ in range(3):
        assert call(RECORDS, NDJSON, offset=str(log.local.local_start)).headers["x-tier"] == "local"
    assert service.memory.kept_bytes == 0


def test_another_segment_of_the_same_name_has_answers_of_its_own(log: Log) -> None:
    """The second one is like a recovered topic's: its facts name objects that are there already."""
    segment = log.reader.view("t", 0).coverage.owned[0].segment
    read = ReadRemote(segment, OffsetRange(Offset(0), Offset(9)))
    memory = AnswerMemory(1 << 20)
    kept, held = KeptAnswers(memory), memory.hold()
    for _ in range(2):
        kept.offer(read, "call", [b"body"], 10, Offset(10))
    assert kept.find(read, "call", held) is not None
    assert kept.find(ReadRemote(replace(segment, topic="other"), read.offsets), "call", held) is None
    assert kept.find(ReadRemote(segment, OffsetRange(Offset(0), Offset(8))), "call", held) is None


def test_clients_of_one_kept_answer_share_its_memory_and_take_a_chunk_each(log: Log) -> None:
    """Otherwise 64 clients push each other's answers out of memory, and each answer is made again."""
    segment = log.reader.view("t", 0).coverage.owned[0].segment
    read = ReadRemote(segment, OffsetRange(Offset(0), Offset(9)))
    memory = AnswerMemory(20_000)
    kept, answers = KeptAnswers(memory), [memory.hold() for _ in range(20)]
    for _ in range(2):
        kept.offer(read, "call", [bytes(100)] * 40, 10, Offset(10))
    whole = memory.kept_bytes
    assert whole >= 4_000
    for answer in answers:
        assert kept.find(read, "call", answer) is not None
    assert (memory.used, memory.kept_bytes) == (whole + 20 * 100, 0)
    for answer in answers:
        answer.release()
    assert (memory.used, memory.kept_bytes) == (0, whole)


def test_an_answer_in_flight_keeps_its_memory_and_other_calls_are_refused() -> None:
    memory = AnswerMemory(100)
    memory.keep("a", "A", 60)
    first, second, other = memory.hold(), memory.hold(), memory.hold()
    assert first.borrow("a") == second.borrow("a") == "A"
    memory.keep("a", "another", 10)
    assert (memory.used, memory.kept_bytes) == (60, 0)
    first.release()
    with pytest.raises(Throttled):
        other.resize(41)
    other.resize(40)
    memory.keep("b", "B", 1)
    assert memory.kept("b") is None
    second.release()
    second.release()
    assert (memory.kept("a"), memory.kept_bytes) == ("A", 60)
    other.resize(41)
    assert (memory.kept("a"), memory.kept_bytes, memory.used) == (None, 0, 41)
    assert other.borrow("a") is None


def test_kept_answers_make_room_for_calls_and_never_refuse_one() -> None:
    memory = AnswerMemory(100)
    memory.keep("a", "A", 40)
    memory.keep("b", "B", 40)
    assert memory.kept("a") == "A"
    memory.keep("c", "C", 30)
    assert (memory.kept("b"), memory.kept_bytes) == (None, 70), "unused longest"
    held = memory.hold()
    held.resize(50)
    assert (memory.kept("a"), memory.kept("c"), memory.used, memory.kept_bytes) == (None, "C", 50, 30)
    held.resize(100)
    assert (memory.kept_bytes, memory.refused) == (0, 0)
    memory.keep("d", "D", 1)
    assert memory.kept("d") is None
    held.release()
    memory.keep("e", "E", 60)
    memory.keep("e", "E again", 70)
    assert (memory.kept("e"), memory.kept_bytes) == ("E again", 70)


@pytest.mark.parametrize("media_type", [BATCHES, NDJSON])
def test_a_client_that_reads_on_never_waits_for_remembered_metadata(
    serve: Callable[..., Running], log: Log, monkeypatch: pytest.MonkeyPatch, media_type: str
) -> None:
    """It reads on for longer than bounds, names and the list of topics are believed: they are renewed in that time."""
    running = serve(log.reader)
    query: dict[str, Any] = {
        "params": {"offset": 0, "max_bytes": 4096, "tier": "remote"},
        "headers": {"accept": media_type},
    }
    for _ in range(3):
        assert running.client.get(RECORDS, **query).status_code == 200

    def refuse(*args: Any, **more: Any) -> Any:
        raise AssertionError("a thread read it")

    monkeypatch.setattr(log.reader, "fetch", refuse)
    assert RENEWED_S < BOUNDS_AGE_S
    until = time.monotonic() + 3 * BOUNDS_AGE_S
    while time.monotonic() < until:
        assert running.client.get(RECORDS, **query).status_code == 200
        time.sleep(0.02)


@pytest.mark.parametrize("media_type", [BATCHES, NDJSON])
def test_after_a_pause_all_clients_wait_for_one_question_and_no_thread_reads(
    serve: Callable[..., Running], log: Log, monkeypatch: pytest.MonkeyPatch, media_type: str
) -> None:
    running = serve(log.reader)
    query: dict[str, Any] = {"params": {"offset": 0, "tier": "remote"}, "headers": {"accept": media_type}}
    for _ in range(3):
        assert running.client.get(RECORDS, **query).status_code == 200
    questions, renew = list[int](), log.reader.renew

    def counted(topic: str, partition: int, offset: int, **more: Any) -> None:
        questions.append(offset)
        time.sleep(0.2)
        renew(topic, partition, offset, **more)

    def refuse(*args: Any, **more: Any) -> Any:
        raise AssertionError("a thread read it")

    monkeypatch.setattr(log.reader, "renew", counted)
    monkeypatch.setattr(log.reader, "fetch", refuse)
    time.sleep(BOUNDS_AGE_S + 0.1)
    with ThreadPoolExecutor(8) as clients:
        answers = [*clients.map(lambda _: running.client.get(RECORDS, **query), range(8))]
    assert [answer.status_code for answer in answers] == [200] * 8
    assert len(questions) <= 2, "the second, if any, by who was answered long after the first"


def test_brokers_that_are_away_after_a_pause_are_waited_for_once(
    serve: Callable[..., Running], log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = serve(log.reader)
    query: dict[str, Any] = {"params": {"offset": 0, "tier": "remote"}, "headers": {"accept": BATCHES}}
    for _ in range(3):
        assert running.client.get(RECORDS, **query).status_code == 200
    waited = list[str]()

    def away(*args: Any, **more: Any) -> Any:
        waited.append("for them")
        raise BrokerUnavailable("as one that is away")

    monkeypatch.setattr(log.reader, "renew", away)
    monkeypatch.setattr(log.reader, "fetch", away)
    time.sleep(BOUNDS_AGE_S + 0.1)
    waited.clear()  # what was asked ahead for the calls above may have come to a reader that was away already
    for _ in range(3):
        answer = running.client.get(RECORDS, **query)
        assert (answer.status_code, "x-view-age" in answer.headers) == (200, True), answer.text
        time.sleep(RENEWED_S)
    assert len(waited) == 1
