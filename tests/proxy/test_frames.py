"""Frames that pass through are changed in the named fields and in nothing else, in every version of every API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest
from kafka.protocol.admin import DeleteRecordsRequest, DeleteRecordsResponse, DescribeClusterResponse
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafka.protocol.metadata import ApiVersionsResponse, FindCoordinatorResponse, MetadataResponse

from tests.proxy.frames import (
    Arriving,
    ShareAcknowledgeResponse,
    ShareFetchResponse,
    again,
    for_every_seed,
    offered_versions,
    read_brokers,
)
from tests.proxy.messages import encoded, kafkas_message, message, versions
from tierstate.broker.wire import Malformed
from tierstate.proxy import addresses
from tierstate.proxy.apis import APIS, Key, offered
from tierstate.proxy.codes import Counts
from tierstate.proxy.deletions import Deletions, Held
from tierstate.proxy.older_offsets import epochs_said, offsets_said, read_epochs, read_list_offsets
from tierstate.proxy.peer import MOST, begun
from tierstate.runtime.pool import Pool
from tierstate.state.errors import ViewBehind


@pytest.mark.parametrize("version", offered_versions(Key.LIST_OFFSETS, ListOffsetsRequest))
@for_every_seed
def test_the_places_of_a_list_offsets_request_are_read(version: int, seed: int) -> None:
    made = message(ListOffsetsRequest, version, seed, isolation_level=seed % 2)
    times = read_list_offsets(encoded(made, version), 0, version)
    assert times == {(t.name, p.partition_index): p.timestamp for t in made.topics for p in t.partitions}


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
