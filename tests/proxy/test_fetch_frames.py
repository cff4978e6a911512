"""Frames of Fetch, Produce and ShareFetch are changed in the named fields and in nothing else, in every version."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kafka.protocol.consumer import (
    FetchRequest,
    FetchResponse,
)
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from tests.proxy.frames import (
    Arriving,
    ShareFetchRequest,
    ShareFetchResponse,
    again,
    for_every_seed,
    hidden,
    names_of_topics,
    offered_versions,
    partitions,
    through,
    topic_of,
)
from tests.proxy.messages import encoded, message
from tierstate.broker.wire import Frame
from tierstate.fetch.piece import Fetched, LogicalBounds
from tierstate.proxy.apis import APIS, Key
from tierstate.proxy.fetch_answer import WITH_ADDRESSES, AnsweredPartition, fill_entry
from tierstate.proxy.fetch_request import HELD_BYTES, TOPIC_IDS, lower, read_fetch
from tierstate.proxy.produce import PRODUCE_WITH_ADDRESSES, refused_produce, without_addresses
from tierstate.proxy.share_fetch import lower_share_fetch, share_reads
from tierstate.state.offsets import Offset
from tierstate.state.routing import Isolation, Tier
from tierstate.state.segment import AbortedRange


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
        entry.set_result(56, LogicalBounds(Offset(13), Offset(13), None, Offset(12), Offset(11)))
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
        entry.set_log_start(3)
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
    data, _ = through(made, version, lambda entry, _: fill_entry(entry, piece, bounds))
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
