"""Messages as the proxy reads and passes them, for tests of every version of every API and many seeds."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from tests.api.gateways import StandIn
from tests.proxy.messages import encoded, kafkas_message, versions
from tierstate.broker.wire import Malformed
from tierstate.proxy import addresses
from tierstate.proxy.apis import APIS, Key
from tierstate.proxy.fetch_answer import AnsweredPartition, FetchAnswer
from tierstate.proxy.fetch_request import TOPIC_IDS, UNUSED_TAG
from tierstate.proxy.peer import begun

SEEDS = range(12)
ShareFetchRequest = kafkas_message("ShareFetchRequest")
ShareFetchResponse = kafkas_message("ShareFetchResponse")
ShareAcknowledgeResponse = kafkas_message("ShareAcknowledgeResponse")


def offered_versions(key: Key, kind: Any) -> list[int]:
    """Return the versions of an API that the proxy offers and that this kind of message has."""
    api = APIS[key]
    numbers = list(versions(kind, api.oldest, api.newest))
    assert numbers
    return numbers


def for_every_seed(test: Callable[..., None]) -> Callable[..., None]:
    """Return one test that runs ``test`` with each of `SEEDS`: a case of its own for each costs more than it shows."""

    @functools.wraps(test)
    def all_seeds(**arguments: Any) -> None:
        for seed in SEEDS:
            test(seed=seed, **arguments)

    signature = inspect.signature(test)
    parameters = [each for name, each in signature.parameters.items() if name != "seed"]
    vars(all_seeds)["__signature__"] = signature.replace(parameters=parameters)
    return all_seeds


def again(kind: Any, data: bytes | bytearray, version: int) -> Any:
    return kind.decode(bytes(data), version=version)


class Arriving(StandIn):  # type: ignore[misc]
    """A frame that arrives by ``step`` bytes at each wait."""

    def __init__(self, data: bytes, step: int = 7) -> None:
        self._data, self._step, self._at, self._came = data, step, 0, 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def at_hand(self) -> memoryview:
        return memoryview(self._data)[self._at : self._came]

    def taken(self, size: int) -> bytes:
        assert size <= len(self.at_hand())
        self._at += size
        return self._data[self._at - size : self._at]

    async def more(self) -> None:
        assert self._came < len(self._data), "nothing more will come"
        self._came += self._step

    async def exactly(self, size: int) -> bytes:
        if size > self.left:
            raise Malformed("a frame ends too early")
        self._came = max(self._came, self._at + size)
        return self.taken(size)


def names_of_topics(topics: Iterable[Any]) -> dict[bytes, str]:
    """Return a name for each topic id, as the proxy has it from the brokers."""
    return {each.topic_id.bytes: f"named-{each.topic_id}" for each in topics}


def topic_of(topic: Any, version: int) -> str:
    return f"named-{topic.topic_id}" if version >= TOPIC_IDS else str(topic.topic)


Change = Callable[[AnsweredPartition, bytes], list[Any]]
"""Returns what to write for an entry and its records."""


def through(made: Any, version: int, change: Change | None = None) -> tuple[bytes, list[AnsweredPartition]]:
    """Return the body of a Fetch answer and its entries as the proxy passes them."""
    topics = names_of_topics(made.responses) if version >= TOPIC_IDS else {}
    return streamed(encoded(made, version), version, topics, change)


def streamed(
    data: bytes, version: int, topics: dict[bytes, str], change: Change | None = None
) -> tuple[bytes, list[AnsweredPartition]]:
    async def read() -> tuple[bytes, list[AnsweredPartition]]:
        header = b"\0" if version >= 12 else b""  # tagged fields of the answer's header
        source = Arriving(header + data)
        answer, entries, parts = FetchAnswer(source, version, topics), list[AnsweredPartition](), list[Any]()
        while (entry := await answer.next()) is not None:
            entries.append(entry)
            records = await source.exactly(entry.size)
            parts += [entry.head, records] if change is None else change(entry, records)
        parts.append(await answer.rest())
        assert source.left == 0
        return b"".join(map(bytes, parts))[len(header) :], entries

    return asyncio.run(read())


def partitions(made: Any, version: int) -> Iterator[tuple[str, Any]]:
    for topic in made.responses or []:
        for partition in topic.partitions or []:
            yield topic_of(topic, version), partition


def hidden(made: Any, version: int, first: int) -> bytes:
    """Return the message as clients get it. Versions ``first`` and up may name brokers at its end."""
    data, names = encoded(made, version), made.node_endpoints if version >= first else []
    if not names:
        return data
    made.node_endpoints = []
    without = encoded(made, version)
    made.node_endpoints = names
    field = data[len(without) :]  # its tag, its size and its value: the field is the only one, and the last one
    assert data == without[:-1] + b"\1" + data[len(without) : len(without) + 1] + field[1:]
    return without[:-1] + b"\1" + bytes([UNUSED_TAG]) + field[1:]


def read_brokers(body: bytes, version: int) -> bytes:
    """Return the part of a Metadata answer that is looked into."""
    header = b"\0" if APIS[Key.METADATA].is_flexible(version) else b""
    at, begin = asyncio.run(begun(Arriving(header + body), partial(addresses.read_brokers, version=version)))
    assert begin[:at] == header
    return begin[at:]
