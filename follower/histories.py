"""The histories of a tier-state topic: which one counts, and how a person begins the next.

A broker that is restored from a backup gives a topic another history: its newest records are lost, and others come in
their place. The archive, which has the lost records, must not continue with the others. No process can know which of
the two is wanted, so a person decides: archive and checkpoints start again with the records of the topic, under the
prefix of the next history; the objects of the previous history stay as they are. History 0 is the first.

    parted/<n>     put by the process that first sees that the topic is no longer of history n: for ever, because the
                   records that show it may be compacted away
    history/<n>    put by a person: from now on history n counts. Names where the previous history was left, and the
                   segments that it alone knew, which no recovery brings back
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
    """``at``: when it was put (ms). The body is a list of segment ids (JSON)."""

    topic_id: str
    number: int
    at: TimestampMs
    why: str
    body_bytes: int
    body_sha256: str


@dataclass(frozen=True, slots=True)
class History:
    """A history that a person began. ``left``: segments that only the previous history knew, lost with it."""

    number: int
    at: TimestampMs
    why: str
    left: frozenset[RemoteSegmentId]


def newest_history(objects: ObjectReader, topic_id: str) -> int:
    """Return the number of the history that counts."""
    return max(numbers_under(objects, history_key(topic_id, 0)), default=0)


def places(objects: ObjectReader, history: int | None = None) -> list[TierPlace]:
    """Return every partition of every tier-state topic with kept objects, in its newest history or in this one."""
    newest: dict[str, int] = {}
    partitions = first_places(objects)
    for place in partitions:
        if place.topic_id not in newest:
            newest[place.topic_id] = newest_history(objects, place.topic_id) if history is None else history
    return [replace(place, history=newest[place.topic_id]) for place in partitions]


def begin_history(
    objects: ObjectWriter, topic_id: str, number: int, at: TimestampMs, why: str, left: Collection[RemoteSegmentId]
) -> None:
    """Make history ``number`` the one that counts. Raises InvalidRequest when another caller was faster."""
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
    """Return the segments that only histories before the newest, or before this one, knew. Raises CorruptData."""
    histories = read_histories(objects, topic_id)
    return frozenset(chain.from_iterable(each.left for each in histories if history is None or each.number <= history))


def say_parted(objects: ObjectWriter, topic_id: str, number: int, at: TimestampMs, why: str) -> None:
    """Record that the topic is no longer of history ``number``, and that a person must decide."""
    header = HistoryHeader(topic_id, number, at, why, 0, NO_BODY)
    try:
        objects.put_if_absent(parted_key(topic_id, number), seal(PARTED, header))
    except ObjectExists:
        return  # others saw it first


def has_parted(objects: ObjectReader, topic_id: str, number: int) -> HistoryBroken | None:
    """Return the recorded end of history ``number``; None when no process recorded one. Raises CorruptData."""
    key = parted_key(topic_id, number)
    try:
        header, _ = unseal(objects.get(key), PARTED, HistoryHeader, source=key)
    except ObjectNotFound:
        return None
    return HistoryBroken(header.why, history=number)
