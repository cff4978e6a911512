"""Keys of the tier-state topic. Only this file creates and parses them.

Keys are UTF-8 text, so any Kafka tool can show them. Each key is written once by its writer and erased once. No key has
two meanings, so compaction removes only what was erased on purpose (`docs/formats.md`, the key table).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from .epochs import TERMINAL_EPOCH
from .errors import InvalidRequest
from .facts import (
    ContradictionSettled,
    Fact,
    GapAccepted,
    IntegrityHold,
    LeaderElected,
    LineageSettled,
    LocalTrimIntended,
    LogStartAdvanced,
    OperatorOrder,
    PartitionDeleted,
    PartitionMissing,
    ReaderLease,
    SegmentCopyFinished,
    SegmentCopyStarted,
    SegmentDeleteFinished,
    SegmentDeleteStarted,
    TopicMeta,
    partition_of,
)
from .ids import FactId, RemoteSegmentId, TopicId, TopicIdPartition
from .offsets import Position
from .segment import Term

TOPIC_META_KEY = "meta/topic"
MAX_NUMBER = 2**63 - 1
"""The limit of positions and counters, which are Avro longs. The limit of epochs is `TERMINAL_EPOCH`."""


class KeyKind(StrEnum):
    """The word after ``T/P/`` (topic id, partition) in a key; for facts about a segment, the word after its id."""

    LEADER = "leader"
    COPY_STARTED = "copy-started"
    COPY_FINISHED = "copy-finished"
    DELETE_STARTED = "delete-started"
    DELETE_FINISHED = "delete-finished"
    LOG_START = "log-start"
    TRIM = "trim"
    ORDER = "order"
    LEASE = "lease"
    HOLD = "hold"
    LINEAGE = "lineage"
    SETTLED = "settled"
    GAP = "gap"
    MISSING = "missing"
    DELETED = "deleted"
    LATER = "later"
    """Any word that this release does not know: a fact of a later release, with the key ``T/P/word/ID``."""


_KNOWN_WORDS = {kind.value for kind in KeyKind} | {"segment"}
_WORD = re.compile("[a-z]+(?:-[a-z]+)*")

_TERMLESS: dict[type[Fact], KeyKind] = {
    OperatorOrder: KeyKind.ORDER,
    ReaderLease: KeyKind.LEASE,
    IntegrityHold: KeyKind.HOLD,
    LineageSettled: KeyKind.LINEAGE,
    ContradictionSettled: KeyKind.SETTLED,
    GapAccepted: KeyKind.GAP,
    PartitionMissing: KeyKind.MISSING,
}
"""The kinds of facts that no term writes. Their keys are ``T/P/kind/ID``."""

SAID_BY_PEOPLE = frozenset(_TERMLESS.values()) - {KeyKind.LEASE}
"""The kinds that no term writes, except leases. Nothing else in a bucket records what these facts record."""


def said_by_people(key: str) -> bool:
    """Return whether the key's kind is in `SAID_BY_PEOPLE`. Fast, and accepts keys of any form."""
    kind = key.split("/", 3)[2:3]
    return bool(kind) and kind[0] in SAID_BY_PEOPLE


@dataclass(frozen=True, slots=True)
class ParsedKey:
    """The parts of a key. ``numbers`` are E, then Q and K if the kind has them. ``id`` is N if the kind has an id."""

    partition: TopicIdPartition
    kind: KeyKind
    segment_id: RemoteSegmentId | None = None
    numbers: tuple[int, ...] = ()
    id: FactId | None = None


def _term_key(term: Term, *counter: int) -> str:
    return "/".join((_digits(term.epoch, TERMINAL_EPOCH), *(_digits(each) for each in (term.position, *counter))))


def _digits(number: int, limit: int = MAX_NUMBER) -> str:
    # A key that `parse_key` refuses would degrade a whole tier-state partition: never create one.
    if not 0 <= number <= limit:
        raise InvalidRequest("number does not fit a key of the tier-state topic", number=number, limit=limit)
    return str(number)


def key_of(fact: Fact) -> str:
    """Return the key of this fact. Raises InvalidRequest if a number is out of the range of a key."""
    partition = partition_of(fact)
    if partition is None or isinstance(fact, TopicMeta):
        return TOPIC_META_KEY
    match fact:
        case LeaderElected():
            rest = f"leader/{_digits(fact.epoch, TERMINAL_EPOCH)}/{fact.id}"
        case SegmentCopyStarted():
            rest = f"segment/{fact.attempt.segment_id}/copy-started"
        case SegmentCopyFinished():
            rest = f"segment/{fact.segment.segment_id}/copy-finished"
        case SegmentDeleteStarted():
            rest = f"segment/{fact.subject.segment_id}/delete-started/{_term_key(fact.term, fact.counter)}"
        case SegmentDeleteFinished():
            rest = f"segment/{fact.subject.segment_id}/delete-finished/{_term_key(fact.term, fact.counter)}"
        case LogStartAdvanced():
            rest = f"log-start/{_term_key(fact.term, fact.counter)}"
        case LocalTrimIntended():
            rest = f"trim/{_term_key(fact.term, fact.counter)}"
        case PartitionDeleted():
            rest = f"deleted/{_term_key(fact.term)}"
        case _:
            rest = f"{_TERMLESS[type(fact)]}/{fact.id}"
    return partition_prefix(partition) + rest


SIGNATURES = 0
"""The tier-state partition that holds all signatures."""


def signature_key(process: str) -> str:
    """Return the key under which a process signs. It appends a tombstone; its heartbeat names the tombstone's position.

    The key is that of a lease that never existed, on a topic that never existed. So every version can parse it, also in
    the archive, and it does not change any view.
    """
    return f"{'A' * 22}/0/{KeyKind.LEASE}/{process}"


def partition_prefix(partition: TopicIdPartition) -> str:
    """Return ``T/P/``, with which every key of a partition begins."""
    return f"{partition.topic_id}/{partition.partition}/"


def partition_of_key(key: str) -> TopicIdPartition | None:
    """Return the user partition of a key without parsing the rest of the key; None for ``meta/topic``."""
    if key == TOPIC_META_KEY:
        return None
    topic_id, _, rest = key.partition("/")
    number, _, _ = rest.partition("/")
    return TopicIdPartition(TopicId(topic_id), _number(number, key))


def parse_key(key: str) -> ParsedKey | None:
    """Parse a key. Returns None for ``meta/topic``.

    Raises InvalidRequest for any text that `key_of` cannot have created; such a key degrades its tier-state partition.
    """
    partition = partition_of_key(key)
    if partition is None:
        return None
    match key.split("/")[2:]:
        case ["leader", epoch, fact_id]:
            return ParsedKey(partition, KeyKind.LEADER, numbers=_numbers([epoch], key), id=FactId(fact_id))
        case ["segment", segment_id, ("copy-started" | "copy-finished") as kind]:
            return ParsedKey(partition, KeyKind(kind), RemoteSegmentId(segment_id))
        case ["segment", segment_id, ("delete-started" | "delete-finished") as kind, *numbers] if len(numbers) == 3:
            return ParsedKey(partition, KeyKind(kind), RemoteSegmentId(segment_id), _numbers(numbers, key))
        case [("log-start" | "trim") as kind, *numbers] if len(numbers) == 3:
            return ParsedKey(partition, KeyKind(kind), numbers=_numbers(numbers, key))
        case [kind, fact_id] if kind in _TERMLESS.values():
            return ParsedKey(partition, KeyKind(kind), id=FactId(fact_id))
        case ["deleted", *numbers] if len(numbers) == 2:
            return ParsedKey(partition, KeyKind.DELETED, numbers=_numbers(numbers, key))
        case [word, fact_id] if word not in _KNOWN_WORDS and _WORD.fullmatch(word):
            return ParsedKey(partition, KeyKind.LATER, id=FactId(fact_id))
        case _:
            raise InvalidRequest("not a key of the tier-state topic", key=repr(key))


def _numbers(texts: list[str], key: str) -> tuple[int, ...]:
    """Return the numbers in the order epoch, position, counter."""
    return (_number(texts[0], key, TERMINAL_EPOCH), *(_number(text, key) for text in texts[1:]))


def _number(text: str, key: str, limit: int = MAX_NUMBER) -> int:
    digits = text.isascii() and text.isdigit() and len(text) <= 19
    if not digits or str(int(text)) != text or int(text) > limit:
        raise InvalidRequest("not a key of the tier-state topic: a number expected", key=repr(key), part=repr(text))
    return int(text)


@lru_cache(65_536)
def tier_partition_of(partition: TopicIdPartition, partitions: int) -> int:
    """Return the tier-state partition that holds all facts of a user partition.

    ``(murmur2(topic id bytes ‖ partition as int32 big endian) & 0x7fffffff) mod partitions``
    """
    data = partition.topic_id.raw + partition.partition.to_bytes(4, "big")
    return (murmur2(data) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Return Kafka's 32-bit murmur2 (`org.apache.kafka.common.utils.Utils.murmur2`), unsigned."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = (0x9747B28C ^ len(data)) & mask
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ (k >> 24)) * m & mask
        h = (h * m & mask) ^ k
    tail = data[whole:]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * m & mask
    h = (h ^ (h >> 13)) * m & mask
    return h ^ (h >> 15)


_REMEMBERED = 65_536
_ID = "[A-Za-z0-9_-]{21}[AQgw]"
_EPOCH, _NUMBER = "(?:0|[1-9][0-9]{0,8})", "(?:0|[1-9][0-9]{0,17})"
_TERM = f"{_EPOCH}/{_NUMBER}"
_SURELY_OURS = re.compile(
    f"leader/{_EPOCH}/{_ID}"
    f"|segment/{_ID}/(?:copy-started|copy-finished|delete-started/{_TERM}/{_NUMBER}|delete-finished/{_TERM}/{_NUMBER})"
    f"|(?:log-start|trim)/{_TERM}/{_NUMBER}"
    f"|(?:order|lease|hold|lineage|settled|missing)/{_ID}"
    f"|deleted/{_TERM}"
)
"""Matches the text after ``T/P/``. It accepts less than `parse_key`, never more; other keys are parsed."""


class Place(NamedTuple):
    """``partition`` is None for ``meta/topic`` and foreign keys. ``foreign`` is why a key is foreign, or None."""

    partition: TopicIdPartition | None
    foreign: str | None = None


_META = Place(None)


class Places:
    """Maps keys to places. ``partitions``: the partition count that maps keys; None accepts any partition (tests)."""

    def __init__(self, partitions: int | None = None) -> None:
        self._partitions = partitions
        self._entries: dict[str, tuple[int | None, Place]] = {}

    def of(self, tier_partition: int, key: str) -> Place:
        """Return the place of a key in a tier-state partition. Never raises, for any key."""
        cut = key.find("/", key.find("/") + 1)
        entry = self._entries.get(key[:cut]) if cut > 0 else None
        if entry is None or _SURELY_OURS.fullmatch(key, cut + 1) is None:
            try:
                entry = self._parsed(key, cut)
            except InvalidRequest as error:
                return Place(None, str(error))
        number, place = entry
        if number is None or number == tier_partition:
            return place
        return Place(None, f"its key belongs in tier-state partition {number}")

    def _parsed(self, key: str, cut: int) -> tuple[int | None, Place]:
        parse_key(key)
        if key == TOPIC_META_KEY:
            return (None if self._partitions is None else 0), _META
        partition = partition_of_key(key)
        assert partition is not None
        number = None if self._partitions is None else tier_partition_of(partition, self._partitions)
        if len(self._entries) >= _REMEMBERED:
            self._entries.clear()
        self._entries[key[:cut]] = number, Place(partition)
        return self._entries[key[:cut]]

    def sentence(self, tier_partition: int, key: str, position: Position) -> str:
        """Return why a foreign key degrades its tier-state partition, with its position."""
        reason = self.of(tier_partition, key).foreign
        return f"foreign record: {reason} tier_partition={tier_partition} position={position} key={key!r}"
