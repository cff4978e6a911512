"""The histories of a tier-state topic: which history is current, and how a person begins the next one.

A broker that is restored from a backup gives a topic another history: the newest records are lost, and new records
take their positions. The archive has the lost records, so it must not continue with the new records. No process can
know which history is wanted, so a person decides. Then archive and checkpoints start again with the topic's records,
under the prefix of the next history. The objects of the previous history stay unchanged. History 0 is the first.

    parted/<n>     put by the first process that sees that the topic is no longer of history n. It is never deleted,
                   because the records that prove it may be compacted away
    history/<n>    put by a person: from now on history n is the current one. It contains the reason, and the segments
                   that only the previous history knew, which no recovery restores
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import chain

import orjson

from ..state.errors import CorruptData, HistoryBroken, InvalidRequest, ObjectExists, ObjectNotFound
from ..state.ids import RemoteSegmentId
from ..state.offsets import TimestampMs
from ..storage.object_store import ObjectReader, ObjectWriter
from .envelope import seal, unseal
from .object_names import TierPlace, first_places, history_key, numbers_under, parted_key

KIND = "history"
PARTED = "parted"
MAX_BYTES = 256 * 1024 * 1024
NO_BODY = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True)
class HistoryHeader:
    """The header of both objects. ``at``: when the object was put (ms). The body of a history: segment ids as JSON."""

    topic_id: str
    number: int
    at: TimestampMs
    why: str
    body_bytes: int
    body_sha256: str


@dataclass(frozen=True, slots=True)
class History:
    """A history that a person began. ``left``: segments that only the previous history knew."""

    number: int
    at: TimestampMs
    why: str
    left: frozenset[RemoteSegmentId]


def newest_history(objects: ObjectReader, topic_id: str) -> int:
    """Return the number of the current history, which is the highest."""
    return max(numbers_under(objects, history_key(topic_id, 0)), default=0)


def places(objects: ObjectReader, history: int | None = None) -> list[TierPlace]:
    """Return the tier-state partitions with objects, of all topics. ``history`` None: each topic's newest history."""
    newest: dict[str, int] = {}
    partitions = first_places(objects)
    for place in partitions:
        if place.topic_id not in newest:
            newest[place.topic_id] = newest_history(objects, place.topic_id) if history is None else history
    return [replace(place, history=newest[place.topic_id]) for place in partitions]


def begin_history(
    objects: ObjectWriter, topic_id: str, number: int, at: TimestampMs, why: str, left: Collection[RemoteSegmentId]
) -> None:
    """Make history ``number`` the current one. Raises InvalidRequest if this history has begun already."""
    body = orjson.dumps(sorted(left))
    header = HistoryHeader(topic_id, number, at, why, len(body), hashlib.sha256(body).hexdigest())
    try:
        objects.put_if_absent(history_key(topic_id, number), seal(KIND, header) + body)
    except ObjectExists as error:
        raise InvalidRequest("this history has begun already: look again", topic_id=topic_id, number=number) from error


def read_histories(objects: ObjectReader, topic_id: str) -> list[History]:
    """Return the histories that people began, oldest first. Raises CorruptData."""
    histories = []
    for number in numbers_under(objects, history_key(topic_id, 0)):
        key = history_key(topic_id, number)
        data = objects.get(key, MAX_BYTES)
        header, start = unseal(data, KIND, HistoryHeader, source=key)
        body = data[start:]
        of_it = (header.topic_id, header.number, header.body_bytes, header.body_sha256)
        if of_it != (topic_id, number, len(body), hashlib.sha256(body).hexdigest()):
            raise CorruptData("history does not match its name or its hash", file=key)
        left = frozenset(map(RemoteSegmentId, orjson.loads(body)))
        histories.append(History(number, header.at, header.why, left))
    return histories


def left_behind(objects: ObjectReader, topic_id: str, history: int | None = None) -> frozenset[RemoteSegmentId]:
    """Return the segments that only histories before ``history`` (None: the newest) knew. Raises CorruptData."""
    histories = read_histories(objects, topic_id)
    return frozenset(chain.from_iterable(each.left for each in histories if history is None or each.number <= history))


def say_parted(objects: ObjectWriter, topic_id: str, number: int, at: TimestampMs, why: str) -> None:
    """Record that the topic is no longer of history ``number``, and that a person must decide."""
    header = HistoryHeader(topic_id, number, at, why, 0, NO_BODY)
    try:
        objects.put_if_absent(parted_key(topic_id, number), seal(PARTED, header))
    except ObjectExists:
        return  # another process recorded it first


def has_parted(objects: ObjectReader, topic_id: str, number: int) -> HistoryBroken | None:
    """Return the recorded divergence from history ``number``, or None if none is recorded. Raises CorruptData."""
    key = parted_key(topic_id, number)
    try:
        header, _ = unseal(objects.get(key), PARTED, HistoryHeader, source=key)
    except ObjectNotFound:
        return None
    return HistoryBroken(header.why, history=number)
