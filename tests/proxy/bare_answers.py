"""Fetches in any version by a bare socket, encoded and decoded by kafka-python."""

from __future__ import annotations

import socket
import struct
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from kafka.protocol.consumer import FetchRequest, FetchResponse

from tests.proxy.bare_fetch import Place, exactly
from tests.proxy.messages import encoded
from tierstate.log.batch import iter_batches
from tierstate.state.ids import TopicId

FLEXIBLE, TOPIC_IDS = 12, 13


@dataclass(frozen=True)
class Answer:
    """One partition of a Fetch answer. ``offsets``: the base offset of each batch."""

    error: int
    high_watermark: int
    log_start: int
    offsets: tuple[int, ...]


def send_fetch(
    client: socket.socket,
    version: int,
    places: Mapping[Place, int],
    max_wait_ms: int,
    topic_ids: Mapping[str, TopicId] | None = None,
    max_bytes: int = 1 << 20,
) -> None:
    """Send a Fetch of each place at its offset."""
    topics = []
    for (topic, partition), offset in places.items():
        kind = FetchRequest.FetchTopic
        made = kind.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
        topics.append(
            kind(topic_id=uuid.UUID(bytes=(topic_ids or {})[topic].raw), partitions=[made])
            if version >= TOPIC_IDS
            else kind(topic=topic, partitions=[made])
        )
    request = FetchRequest(replica_id=-1, max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 26, topics=topics)
    head = struct.pack(">hhih", 1, version, 1, -1) + (b"\0" if version >= FLEXIBLE else b"")
    body = head + encoded(request, version)
    client.sendall(struct.pack(">i", len(body)) + body)


def answers_of(
    client: socket.socket, version: int, topic_ids: Mapping[str, TopicId] | None = None
) -> dict[Place, Answer]:
    """Return the next Fetch answer, by topic and partition."""
    body = exactly(client, int.from_bytes(exactly(client, 4), "big"))[5 if version >= FLEXIBLE else 4 :]
    names = {topic_id.raw: name for name, topic_id in (topic_ids or {}).items()}
    answers = {}
    for topic in FetchResponse.decode(body, version=version).responses:
        name = names[topic.topic_id.bytes] if version >= TOPIC_IDS else topic.topic
        for each in topic.partitions:
            batches = iter_batches(bytes(each.records or b""), source="answer", partial_tail_ok=True)
            answers[name, each.partition_index] = Answer(
                each.error_code, each.high_watermark, each.log_start_offset, tuple(one.base_offset for one in batches)
            )
    return answers
