"""Frames that pass through are changed in the named fields and in nothing else, in every version of every API."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pytest
from kafka.protocol.admin import DeleteRecordsRequest, DeleteRecordsResponse, DescribeClusterResponse
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafka.protocol.metadata import ApiVersionsResponse, FindCoordinatorResponse, MetadataResponse
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from tests.proxy.messages import encoded, kafkas_message, message, versions
from tierstate.broker.wire import Frame, Malformed
from tierstate.fetch.piece import Fetched, LogicalBounds
from tierstate.proxy import addresses
from tierstate.proxy.apis import APIS, Key
from tierstate.proxy.arriving import MOST, begun
from tierstate.proxy.counts import Counts
from tierstate.proxy.deletions import Deletions, Held
from tierstate.proxy.fetch_answer import WITH_ADDRESSES, AnsweredPartition, FetchAnswer, Said, filled
from tierstate.proxy.fetch_request import TOPIC_IDS, lower, read_fetch
from tierstate.proxy.offsets import epochs_said, offsets_said, read_epochs, read_list_offsets
from tierstate.proxy.produce_answer import PRODUCE_WITH_ADDRESSES, without_addresses
from tierstate.proxy.refused_produce import refused_produce
from tierstate.proxy.share_fetch import HELD_BYTES, lower_share_fetch, share_reads
from tierstate.proxy.tagged_fields import UNUSED_TAG
from tierstate.proxy.versions import offered
from tierstate.runtime.pool import Pool
from tierstate.state.errors import ViewBehind
from tierstate.state.offsets import Offset
from tierstate.state.routing import Isolation, Tier
from tierstate.state.segment import AbortedRange

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


class Arriving:
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


@pytest.mark.parametrize("version", offered_versions(Key.FETCH, FetchRequest))
@for_every_seed
def test_a_fetch_request_keeps_all_but_its_session_and_its_bound(version: int, seed: int) -> None:
    made = message(FetchRequest, version, seed, max_bytes=50 << 20, isolation_level=seed % 2, replica_id=-(seed % 3))
    data = bytearray(encoded(made, version))
    request = read_fetch(data, 0, version, names_of_topics(made.topics) if version >= TOPIC_IDS else {})
    lower(data, request, 8 << 20)
    made.max_bytes = 8 << 20
    if version >= 7:
        made.session_id, made.session_epoch = 0, -1
    assert bytes(data) == encoded(made, version)
    expected = {
        (topic_of(topic, version), each.partition): (each.fetch_offset, each.partition_max_bytes)
        for topic in made.topics
        for each in topic.partitions
    }
    assert {place: (each.offset, each.max_bytes) for place, each in request.positions.items()} == expected
    level = Isolation.READ_COMMITTED if seed % 2 else Isolation.READ_UNCOMMITTED
    assert (request.isolation, request.max_wait_ms) == (level, made.max_wait_ms)
    state = made.replica_state if version >= 15 else None
    assert request.follower == (
        (-1 if state is None else state.replica_id) >= 0 if version >= 15 else made.replica_id >= 0
    )
    assert request.unnamed == []


@pytest.mark.parametrize("version", offered_versions(Key.FETCH, FetchResponse))
@for_every_seed
def test_a_fetch_answer_passes_byte_for_byte(version: int, seed: int) -> None:
    made = message(FetchResponse, version, seed)
    passed, entries = through(made, version)
    assert passed == hidden(made, version, WITH_ADDRESSES)
    entry_list = [
        (topic, each.partition_index, each.error_code, len(each.records or b""))
        for topic, each in partitions(made, version)
    ]
    assert [(each.topic, each.partition, each.error, each.size) for each in entries] == entry_list


@pytest.mark.parametrize("version", offered_versions(Key.FETCH, FetchResponse))
@for_every_seed
def test_a_changed_entry_differs_only_in_the_changed_field(version: int, seed: int) -> None:
    made = message(FetchResponse, version, seed)

    def change(entry: AnsweredPartition, records: bytes) -> list[Any]:
        entry.says(56, Said(11, 12, 13))
        return [entry.head, records]

    data, _ = through(made, version, change)
    for _, each in partitions(made, version):
        each.error_code, each.high_watermark, each.last_stable_offset = 56, 11, 12
        if version >= 5:
            each.log_start_offset = 13
    assert data == hidden(made, version, WITH_ADDRESSES)


@pytest.mark.parametrize("version", offered_versions(Key.FETCH, FetchResponse))
@for_every_seed
def test_a_passing_entry_gets_the_log_start_of_both_tiers(version: int, seed: int) -> None:
    made = message(FetchResponse, version, seed)
    starts: list[int] = []

    def change(entry: AnsweredPartition, records: bytes) -> list[Any]:
        starts.append(entry.log_start)
        entry.begins_at(3)
        return [entry.head, records]

    data, _ = through(made, version, change)
    assert starts == [each.log_start_offset if version >= 5 else -1 for _, each in partitions(made, version)]
    for _, each in partitions(made, version):
        each.log_start_offset = 3
    assert data == hidden(made, version, WITH_ADDRESSES)


@pytest.mark.parametrize("version", offered_versions(Key.FETCH, FetchResponse))
@for_every_seed
def test_a_filled_entry_has_the_records_the_bounds_and_the_aborted_transactions(version: int, seed: int) -> None:
    made = message(FetchResponse, version, seed)
    aborted = tuple(AbortedRange(7 + n, Offset(100 + n), Offset(200)) for n in range(seed % 3))
    start = None if seed % 2 else Offset(3)
    bounds = LogicalBounds(start, Offset(500), Offset(499), Offset(900), Offset(1_000))
    records = bytes(range(256)) * (1 + seed)
    piece = Fetched(records, Tier.REMOTE, aborted, Offset(100), Offset(300), Offset(500), bounds)
    data, _ = through(made, version, lambda entry, _: filled(entry, piece, bounds))
    decoded_message = again(FetchResponse, data, version)
    assert decoded_message.throttle_time_ms == made.throttle_time_ms
    pairs = list(zip(partitions(decoded_message, version), partitions(made, version), strict=True))
    assert [after[0] for after, _ in pairs] == [before[0] for _, before in pairs]
    for (_, each), (_, before) in pairs:
        assert (each.partition_index, each.error_code) == (before.partition_index, 0)
        assert (each.high_watermark, each.last_stable_offset) == (1_000, 900)
        assert version < 5 or each.log_start_offset == (-1 if start is None else 3)
        assert [(one.producer_id, one.first_offset) for one in each.aborted_transactions or []] == [
            (one.producer_id, one.first) for one in aborted
        ]
        assert version < 11 or each.preferred_read_replica == -1
        assert bytes(each.records) == records


@pytest.mark.parametrize("version", offered_versions(Key.LIST_OFFSETS, ListOffsetsRequest))
@for_every_seed
def test_the_places_of_a_list_offsets_request_are_read(version: int, seed: int) -> None:
    made = message(ListOffsetsRequest, version, seed, isolation_level=seed % 2)
    places = read_list_offsets(encoded(made, version), 0, version)
    assert places.timestamps == {(t.name, p.partition_index): p.timestamp for t in made.topics for p in t.partitions}
    assert (places.isolation is Isolation.READ_COMMITTED) == (version >= 2 and seed % 2 == 1)


@pytest.mark.parametrize("version", offered_versions(Key.LIST_OFFSETS, ListOffsetsResponse))
@for_every_seed
def test_offsets_are_patched_where_they_stand(version: int, seed: int) -> None:
    made = message(ListOffsetsResponse, version, seed)
    data = bytearray(encoded(made, version))
    entries = list(offsets_said(data, version))
    expected = [
        ((t.name, p.partition_index), p.error_code, p.timestamp, p.offset) for t in made.topics for p in t.partitions
    ]
    assert [(each.place, each.error, each.timestamp, each.offset) for each in entries] == expected
    for number, each in enumerate(entries):
        if number % 2:
            each.fails(data, 56)
        else:
            each.says(data, 1234, 5678, 9)
    for number, each in enumerate(p for t in made.topics for p in t.partitions):
        after = (56, -1, -1, -1) if number % 2 else (0, 1234, 5678, 9)
        each.error_code, each.timestamp, each.offset = after[:3]
        if version >= 4:
            each.leader_epoch = after[3]
    assert bytes(data) == encoded(made, version)


@pytest.mark.parametrize("version", offered_versions(Key.OFFSET_FOR_LEADER_EPOCH, OffsetForLeaderEpochRequest))
@for_every_seed
def test_the_epochs_of_an_epochs_request_are_read(version: int, seed: int) -> None:
    made = message(OffsetForLeaderEpochRequest, version, seed)
    epochs = {(t.topic, p.partition): p.leader_epoch for t in made.topics for p in t.partitions}
    assert read_epochs(encoded(made, version), 0, version) == epochs


@pytest.mark.parametrize("version", offered_versions(Key.OFFSET_FOR_LEADER_EPOCH, OffsetForLeaderEpochResponse))
@for_every_seed
def test_epochs_are_patched_where_they_stand(version: int, seed: int) -> None:
    made = message(OffsetForLeaderEpochResponse, version, seed)
    data = bytearray(encoded(made, version))
    entries = list(epochs_said(data, version))
    expected = [
        ((t.topic, p.partition), p.error_code, p.leader_epoch, p.end_offset) for t in made.topics for p in t.partitions
    ]
    assert [(each.place, each.error, each.epoch, each.end) for each in entries] == expected
    for number, (each, one) in enumerate(zip(entries, [p for t in made.topics for p in t.partitions], strict=True)):
        if number % 2:
            each.fails(data, 56)
            one.error_code, one.leader_epoch, one.end_offset = 56, -1, -1
        else:
            each.says(data, 3, 4)
            one.leader_epoch, one.end_offset = 3, 4
    assert bytes(data) == encoded(made, version)


@pytest.mark.parametrize("version", offered_versions(Key.DELETE_RECORDS, DeleteRecordsRequest))
@for_every_seed
def test_a_deletion_of_tiered_records_asks_the_broker_to_delete_nothing_and_others_pass(
    version: int, seed: int
) -> None:
    made = message(DeleteRecordsRequest, version, seed)
    for number, topic in enumerate(made.topics):
        topic.name = f"{'tiered' if number % 2 else 'plain'}-{number}"
    data = bytearray(encoded(made, version))
    held = asyncio.run(deletions().hold(data, 0, version))
    places = [(topic.name, each.partition_index) for topic in made.topics for each in topic.partitions]
    assert set(held.codes) == {place for place in places if place[0].startswith("tiered")}
    for topic in made.topics:
        for each in topic.partitions:
            each.offset = 0 if topic.name.startswith("tiered") else each.offset
    assert bytes(data) == encoded(made, version)


@pytest.mark.parametrize("version", offered_versions(Key.DELETE_RECORDS, DeleteRecordsResponse))
@for_every_seed
def test_a_held_deletion_is_answered_with_a_refusal_unless_the_broker_refused_it_itself(
    version: int, seed: int
) -> None:
    made = message(DeleteRecordsResponse, version, seed)
    for number, topic in enumerate(made.topics):
        topic.name = f"t-{number}"
    entries = [(topic, each) for topic in made.topics for each in topic.partitions]
    held = {(topic.name, each.partition_index): 44 for number, (topic, each) in enumerate(entries) if number % 3}
    data = encoded(made, version)
    refused: list[str] = []
    answers = deletions(lambda event, **facts: refused.append(str(facts["reason"])))
    patched = asyncio.run(answers.patch(Held(held, dict.fromkeys(held, 45)), "client", version, data))
    expected = 0
    for topic, each in entries:
        if each.error_code == 0 and (topic.name, each.partition_index) in held:
            each.error_code, each.low_watermark = 44, -1
            expected += 1
    assert bytes(patched) == encoded(made, version)
    assert len(refused) == expected
    assert all("tierstate delete-records t-" in each for each in refused)


def test_records_of_a_possibly_tiered_topic_are_not_deleted() -> None:
    topic = DeleteRecordsRequest.DeleteRecordsTopic
    partition = topic.DeleteRecordsPartition(partition_index=3, offset=45)
    made = DeleteRecordsRequest(topics=[topic(name="unknown", partitions=[partition])], timeout_ms=9)
    data = bytearray(encoded(made, 2))
    assert asyncio.run(deletions().hold(data, 0, 2)).codes == {("unknown", 3): 56}
    partition.offset = 0
    assert bytes(data) == encoded(made, 2)


class OneTiered:
    """A reader that has the topics whose names begin with a prefix."""

    def is_tiered(self, topic: str) -> bool:
        if topic == "unknown":
            raise ViewBehind("the view is still being read")
        return topic.startswith("tiered")


def deletions(warn: Callable[..., object] = lambda event, **facts: None) -> Deletions:
    reader: Any = OneTiered()
    return Deletions(reader, Pool("test", 1), Counts(), warn)


@pytest.mark.parametrize("version", offered_versions(Key.PRODUCE, ProduceRequest))
@for_every_seed
def test_a_produce_request_is_refused_partition_by_partition(version: int, seed: int) -> None:
    made = message(ProduceRequest, version, seed, acks=seed % 3 - 1)
    client = b"\0\4mine" + (b"\0" if version >= 9 else b"")
    source = Arriving(client + encoded(made, version))
    answer = asyncio.run(refused_produce(source, version, 77))
    assert source.left == 0
    if made.acks == 0:
        assert answer is None
        return
    assert answer is not None
    assert answer[:4] == (77).to_bytes(4)
    decoded_message = again(ProduceResponse, answer[5 if version >= 9 else 4 :], version)
    topic = "topic_id" if version >= TOPIC_IDS else "name"
    assert [(getattr(t, topic), [p.index for p in t.partition_responses]) for t in decoded_message.responses] == [
        (getattr(t, topic), [p.index for p in t.partition_data]) for t in made.topic_data
    ]
    assert {p.error_code for t in decoded_message.responses for p in t.partition_responses} <= {31}
    assert {p.base_offset for t in decoded_message.responses for p in t.partition_responses} <= {-1}


@pytest.mark.parametrize("version", range(PRODUCE_WITH_ADDRESSES, APIS[Key.PRODUCE].newest + 1))
@for_every_seed
def test_the_address_of_a_new_leader_is_hidden_from_a_producer_and_nothing_else_changes(
    version: int, seed: int
) -> None:
    made = message(ProduceResponse, version, seed)
    patched = without_addresses(encoded(made, version), version)
    assert bytes(patched) == hidden(made, version, PRODUCE_WITH_ADDRESSES)
    decoded_message = again(ProduceResponse, patched, version)
    assert not decoded_message.node_endpoints
    assert len(decoded_message.responses) == len(made.responses)


@for_every_seed
def test_a_client_skips_the_hidden_address_of_a_fetch_answer(seed: int) -> None:
    version = APIS[Key.FETCH].newest
    made = message(FetchResponse, version, seed)
    assert not again(FetchResponse, hidden(made, version, WITH_ADDRESSES), version).node_endpoints


@pytest.mark.parametrize("version", [1, 2])
@for_every_seed
def test_a_share_fetch_asks_for_no_more_than_an_answer_that_is_held(version: int, seed: int) -> None:
    made = message(ShareFetchRequest, version, seed, max_bytes=[100, HELD_BYTES + 1, 50 << 20][seed % 3])
    data = bytearray(encoded(made, version))
    lower_share_fetch(data, 0)
    made.max_bytes = min(made.max_bytes, HELD_BYTES)
    assert bytes(data) == encoded(made, version)


@pytest.mark.parametrize("version", [1, 2])
@for_every_seed
def test_the_reads_of_a_share_group_are_seen(version: int, seed: int) -> None:
    made = message(ShareFetchResponse, version, seed)
    acquired = [(topic, each, each.acquired_records) for topic in made.responses for each in topic.partitions]
    assert list(share_reads(Frame(encoded(made, version)))) == [
        (topic.topic_id.bytes, each.partition_index, own[0].first_offset if own else -1, len(each.records or b""))
        for topic, each, own in acquired
    ]


NAMING: list[tuple[Key, Any, str]] = [
    (Key.METADATA, MetadataResponse, "brokers"),
    (Key.FIND_COORDINATOR, FindCoordinatorResponse, "coordinators"),
    (Key.DESCRIBE_CLUSTER, DescribeClusterResponse, "brokers"),
    (Key.SHARE_FETCH, ShareFetchResponse, "node_endpoints"),
    (Key.SHARE_ACKNOWLEDGE, ShareAcknowledgeResponse, "node_endpoints"),
]
HIDDEN = {Key.PRODUCE, Key.FETCH}
"""The answers whose addresses are hidden."""
OF_APPLICATIONS = {88, 89}
"""The answers of Streams' groups. They have the addresses of the applications, not of brokers."""


@pytest.mark.parametrize(
    ("key", "kind", "array", "version"),
    [(key, kind, array, version) for key, kind, array in NAMING for version in offered_versions(key, kind)],
)
@for_every_seed
def test_every_address_in_an_answer_becomes_a_listeners_and_nothing_else_changes(
    key: Key, kind: Any, array: str, version: int, seed: int
) -> None:
    made = message(kind, version, seed)
    own = [made] if key is Key.FIND_COORDINATOR and version < 4 else list(getattr(made, array) or [])
    data = encoded(made, version)
    node_ids = addresses.nodes(key, data, version)
    numbers = [each.broker_id if key is Key.DESCRIBE_CLUSTER else each.node_id for each in own]
    assert [(each.node, each.host, each.port) for each in node_ids] == [
        (number, each.host, each.port) for number, each in zip(numbers, own, strict=True)
    ]
    kept = set(numbers[1::2]) - set(numbers[::2])  # there is no listener for these
    listeners = {number: (f"proxy-{number}", 9) for number in numbers if number not in kept}
    flexible = APIS[key].is_flexible(version)
    for number, each in zip(numbers, own, strict=True):
        if number not in kept:
            each.host, each.port = listeners[number]
    assert addresses.rewritten(data, node_ids, listeners, flexible=flexible) == encoded(made, version)


def names_of(fields: Iterable[Any], version: int) -> set[str]:
    """Return the names of these fields, and of the fields within them."""
    names: set[str] = set()
    for each in fields:
        if each._versions[0] <= version <= each._versions[1]:
            inner = getattr(each, "fields", None) or getattr(getattr(each, "array_of", None), "fields", None) or {}
            names |= {each.name, *names_of(inner.values(), version)}
    return names


def test_no_other_answer_has_a_place_for_an_address() -> None:
    """All offered versions are tried."""
    answers = [each for each in ApiMessage.__subclasses__() if each.__name__.endswith("Response")]
    classes = {each.API_KEY: each for each in answers if each.__module__.startswith("kafka.")}
    classes |= {key: kafkas_message(f"{APIS[key].name}Response") for key in APIS.keys() - classes.keys()}
    naming = {
        key
        for key, api in APIS.items()
        if key in classes
        for version in versions(classes[key], api.oldest, api.newest)
        if {"host", "port"} <= names_of(classes[key]._struct.fields.values(), version)
    }
    assert naming == {key for key, _, _ in NAMING} | HIDDEN | OF_APPLICATIONS


def read_brokers(body: bytes, version: int) -> bytes:
    """Return the part of a Metadata answer that is looked into."""
    header = b"\0" if APIS[Key.METADATA].is_flexible(version) else b""
    at, begin = asyncio.run(begun(Arriving(header + body), partial(addresses.read_brokers, version=version)))
    assert begin[:at] == header
    return begin[at:]


@pytest.mark.parametrize("version", offered_versions(Key.METADATA, MetadataResponse))
@for_every_seed
def test_only_the_beginning_of_metadata_is_read_and_it_names_every_broker(version: int, seed: int) -> None:
    data = encoded(message(MetadataResponse, version, seed), version)
    begin = read_brokers(data, version)
    assert data.startswith(begin)
    assert addresses.nodes(Key.METADATA, begin, version) == addresses.nodes(Key.METADATA, data, version)


def test_a_beginning_that_never_ends_is_given_up_after_256_kib() -> None:
    source = Arriving(b"\x7f\xff\xff\xff" + bytes(1 << 20), step=4096)
    with pytest.raises(Malformed):
        asyncio.run(begun(source, partial(addresses.read_brokers, version=0)))
    assert len(source.at_hand()) == MOST


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("version", offered_versions(Key.API_VERSIONS, ApiVersionsResponse))
@for_every_seed
def test_only_what_passes_is_offered_and_never_more_than_the_broker_has(
    version: int, seed: int, read_only: bool
) -> None:
    made = message(ApiVersionsResponse, version, seed, error_code=0)
    made.api_keys = [
        ApiVersionsResponse.ApiVersion(api_key=key, min_version=seed % 4, max_version=2 + 3 * (seed % 7))
        for key in range(100)
    ]
    answer = offered(encoded(made, version), version, read_only=read_only)
    made.api_keys = [
        ApiVersionsResponse.ApiVersion(api_key=key, min_version=oldest, max_version=newest)
        for key, api in sorted(APIS.items())
        if (oldest := max(seed % 4, api.oldest)) <= (newest := min(2 + 3 * (seed % 7), api.newest))
        and not (read_only and api.changes)
    ]
    assert answer == encoded(made, version)


def test_a_broker_that_does_not_know_the_version_answers_in_the_oldest_and_is_understood() -> None:
    made = message(ApiVersionsResponse, 0, 1, error_code=35)
    made.api_keys = [ApiVersionsResponse.ApiVersion(api_key=18, min_version=0, max_version=9)]
    decoded_message = again(ApiVersionsResponse, offered(encoded(made, 0), 4, read_only=False), 0)
    assert [(each.api_key, each.max_version) for each in decoded_message.api_keys] == [(18, APIS[18].newest)]
