"""Limits of memory: no batch, and no number of clients, makes the gateway hold more than its budget."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from tests.api.bombed import BombedGateway, Prepared, bombed_gateway
from tests.api.gateways import RECORDS, Call, MemoryReader, asgi_call
from tests.log.batches import GZIP, LZ4, NONE, SNAPPY, ZSTD
from tests.scenarios.house import eventually
from tierstate.api.answer_memory import AnswerMemory
from tierstate.api.app import create_app
from tierstate.api.media import ARROW, BATCHES, KAFKA_BINARY, KAFKA_JSON, NDJSON, PARQUET
from tierstate.api.service import FetchService
from tierstate.log.decode import decode_records
from tierstate.runtime.allocator import HEAPS, KEPT_BYTES
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.gateway_settings import Gateway
from tierstate.state.errors import BatchTooLarge, CorruptData, Throttled

MIB = 1 << 20
CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
DECODED = (NDJSON, KAFKA_BINARY, ARROW, PARQUET)


def gateway(reader: MemoryReader, **settings: Any) -> tuple[Call, FetchService]:
    service = FetchService(reader, Gateway(**settings), SystemClock())
    return asgi_call(create_app(service)), service


@pytest.mark.parametrize("media_type", DECODED)
@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_that_unpacks_to_more_is_refused_by_its_offset(codec: str, media_type: str) -> None:
    reader = Prepared()
    reader.add(b"small")
    stored = reader.add(bytes(5 * MIB), CODECS[codec])
    ask, service = gateway(reader, max_bytes=4 * MIB)
    answer = ask(RECORDS, media_type, offset=1)
    body = answer.json()
    assert (answer.status_code, body["error_code"], body["offset"], body["stored_bytes"]) == (422, 42251, 1, stored)
    assert BATCHES in body["message"]
    whole = ask(RECORDS, BATCHES, offset=1)
    assert (whole.status_code, whole.headers["x-next-offset"]) == (200, "2")
    (block,) = decode_records(whole.content[:stored], source="answer")
    assert int(block.size[0, 1]) == 5 * MIB
    assert service.memory.used == 0


@pytest.mark.parametrize("codec", CODECS)
def test_one_that_fits_is_read_as_it_is(codec: str) -> None:
    reader = Prepared()
    value = os.urandom(300_000) * 9
    reader.add(value, CODECS[codec])
    ask, _ = gateway(reader, max_bytes=4 * MIB)
    answer = ask(RECORDS, NDJSON, offset=0, encoding="base64")
    assert answer.status_code == 200
    assert len(json.loads(answer.content)["value"]) == (len(value) + 2) // 3 * 4


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [1000, 65_536, 70_000, 3 * MIB])
def test_the_limit_of_a_reader_holds_to_the_byte(codec: str, size: int) -> None:
    reader = Prepared()
    reader.add(bytes(size), CODECS[codec])
    data = reader.batches[0]
    assert sum(len(block) for block in decode_records(data, source="t", most_unpacked=size + 20)) == 1
    with pytest.raises(BatchTooLarge):
        list(decode_records(data, source="t", most_unpacked=size - 1))


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_a_damaged_batch_is_damaged_and_not_too_large(codec: str) -> None:
    reader = Prepared()
    reader.add(os.urandom(1000) * 30, CODECS[codec])
    data = bytearray(reader.batches[0])
    data[80:120] = bytes(40)
    with pytest.raises(CorruptData):
        list(decode_records(bytes(data), source="t", verify_crc=False, most_unpacked=MIB))


@pytest.mark.extended
def test_a_batch_of_which_one_record_is_wanted_is_bounded_too() -> None:
    """The call is for a few bytes; the batch is whatever a producer has written."""
    reader = Prepared()
    assert reader.add(bytes(200 * MIB)) < 30_000
    ask, service = gateway(reader)
    for media_type in (*DECODED, KAFKA_JSON):
        answer = ask(RECORDS, media_type, offset=0, max_records=1, max_bytes=1, **{})
        assert answer.status_code in (400, 422)
    assert service.memory.most_used < 64 * MIB


@pytest.mark.extended
@pytest.mark.parametrize("media_type", DECODED)
def test_nothing_behind_the_last_record_that_is_wanted_is_unpacked(media_type: str) -> None:
    reader = Prepared()
    for _ in range(5):
        reader.add(b"small")
    reader.add(bytes(200 * MIB))
    ask, _ = gateway(reader)
    answer = ask(RECORDS, media_type, offset=0, max_records=5)
    assert (answer.status_code, answer.headers["x-next-offset"]) == (200, "5")
    answer = ask(RECORDS, media_type, offset=0, max_records=6)
    assert (answer.status_code, answer.headers["x-next-offset"]) == (200, "5"), "what comes before it is an answer"
    assert ask(RECORDS, media_type, offset=5, max_records=1).status_code == 422


def test_an_answer_that_does_not_fit_is_refused_at_once() -> None:
    reader = Prepared()
    reader.add(os.urandom(MIB))
    ask, service = gateway(reader, memory=16 * MIB)
    before = service.memory.hold()
    before.resize(15 * MIB)
    answer = ask(RECORDS, BATCHES, offset=0)
    assert (answer.status_code, answer.json()["error_code"], answer.headers["retry-after"]) == (429, 42950, "1")
    before.release()
    assert ask(RECORDS, BATCHES, offset=0).status_code == 200
    assert (service.memory.used, service.memory.refused) == (0, 1)


def test_an_answer_that_never_fits_is_not_told_to_try_again() -> None:
    reader = Prepared()
    reader.add(os.urandom(17 * MIB))
    ask, service = gateway(reader, memory=16 * MIB, max_bytes=20 * MIB)
    for media_type in (BATCHES, NDJSON):
        answer = ask(RECORDS, media_type, offset=0)
        assert (answer.status_code, answer.json()["error_code"]) == (422, 42251)
    assert service.memory.used == 0


def test_memory_is_taken_once_and_given_back_once() -> None:
    memory = AnswerMemory(100)
    first, second = memory.hold(), memory.hold()
    first.resize(60)
    with pytest.raises(Throttled):
        second.resize(41)
    second.resize(40)
    first.resize(10)
    assert memory.used == 50
    first.release()
    first.release()
    first.resize(90)  # a thread that was still at work
    assert (memory.used, memory.most_used) == (40, 100)


@pytest.fixture
def full() -> Iterator[BombedGateway]:
    with bombed_gateway(budget=128 * MIB, max_bytes=12 * MIB) as gateway:
        yield gateway


@pytest.mark.slow
def test_stopped_clients_and_bombs_cost_no_more_than_the_budget(full: BombedGateway) -> None:
    """A thousand clients stop reading their answers, and others ask for bombs at the same time."""
    whole = f"{full.url}{RECORDS}?offset=0&max_bytes={12 * MIB}"
    for media_type in (BATCHES, *DECODED):  # what a first call costs for good
        assert httpx.get(whole, headers={"accept": media_type}, timeout=60).status_code == 200
    before = full.resident()

    def bomb(number: int) -> int:
        accept = {"accept": DECODED[number % 3]}
        return httpx.get(f"{full.url}{RECORDS}?offset=12&max_records=1", headers=accept, timeout=60).status_code

    with ExitStack() as opened, ThreadPoolExecutor(16) as pool:
        for number in range(1000):
            client = opened.enter_context(socket.create_connection(full.address))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            accept = (BATCHES, *DECODED)[number % 4]
            request = (
                f"GET {RECORDS}?offset=0&max_bytes={12 * MIB} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n"
            )
            client.sendall(request.encode())
        assert set(pool.map(bomb, range(60))) <= {422, 429}
        eventually(lambda: full.memory()["refused"] > 100)
        grown = full.resident() - before
        assert grown <= 128 * MIB + 64 * MIB, f"{grown / MIB:.0f} MiB"
        assert full.memory()["most_used"] <= 128 * MIB
    eventually(lambda: full.memory()["used"] == 0)
    assert httpx.get(f"{full.url}{RECORDS}?offset=0", timeout=60).status_code == 200
    kept = full.resident() - before
    assert kept <= HEAPS * KEPT_BYTES, f"{kept / MIB:.0f} MiB"
