"""Two digests: one of a live set, one of a partition's meaning. Both are independent of the order of elements.

The live-set digest covers key, position and value. Ready followers at the same position have the same one. The meaning
digest covers readable segments and the log start, but no positions, so it can be compared with a recovered topic. Each
digest is the sum modulo 2^256 of the SHA-256 of each element.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import orjson

from ..schemas.codec import descriptor_to_json
from ..state.ids import TopicIdPartition
from ..state.keys import partition_prefix
from ..state.offsets import Position
from ..state.partition_view import PartitionView
from ..state.view import Entry, ViewStore


class SetDigest:
    """A digest of a set; add elements in any order."""

    def __init__(self) -> None:
        self.count, self._sum = 0, 0

    def add(self, *parts: bytes) -> None:
        """Add one element, as length-prefixed parts."""
        data = b"".join(struct.pack(">I", len(part)) + part for part in parts)
        self._sum = (self._sum + int.from_bytes(hashlib.sha256(data).digest(), "big")) % 2**256
        self.count += 1

    def hexdigest(self) -> str:
        return f"{self._sum:064x}"


def add_entry(digest: SetDigest, tier_partition: int, entry: Entry) -> None:
    digest.add(struct.pack(">Iq", tier_partition, entry.position), entry.key.encode(), entry.value or b"")


def live_set_digest(entries: Iterable[tuple[int, Entry]]) -> SetDigest:
    """Return the digest of the entries of some tier-state partitions, or of one user partition."""
    digest = SetDigest()
    for number, entry in entries:
        add_entry(digest, number, entry)
    return digest


def meaning_digest(view: PartitionView) -> str:
    """Return the digest of a partition's readable segments (descriptors without the term) and its log start."""
    digest = SetDigest()
    for segment in view.readable:
        record = descriptor_to_json(segment)
        del record["term"]  # the term's position belongs to one topic, not to the meaning
        digest.add(b"segment", orjson.dumps(record, option=orjson.OPT_SORT_KEYS))
    digest.add(b"log-start", str(view.log_start).encode())
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class ViewDigests:
    """The digests of a view. ``facts``: number of entries. ``meanings``: partition, topic name and meaning digest."""

    facts: int
    live_set: str
    meanings: tuple[tuple[TopicIdPartition, str | None, str], ...]


def digests_of(store: ViewStore, only: Collection[TopicIdPartition] | None = None) -> ViewDigests:
    """Return both digests of a store. ``only`` limits them to these user partitions; None means all."""
    prefixes = None if only is None else tuple(partition_prefix(each) for each in only)
    live = live_set_digest(
        (number, entry) for number, entry in store.entries() if prefixes is None or entry.key.startswith(prefixes)
    )
    meanings = []
    for partition in store.partitions():
        if only is None or partition in only:
            view = store.state(partition).view()
            meanings.append((partition, view.topic, meaning_digest(view)))
    return ViewDigests(live.count, live.hexdigest(), tuple(meanings))


@dataclass(frozen=True, slots=True)
class FactDifference:
    """A key that is in one view only, or has different positions or values. None: the key is not in that view."""

    tier_partition: int
    key: str
    left: Position | None
    right: Position | None


def differences(left: ViewStore, right: ViewStore, only: int | None = None) -> Iterator[FactDifference]:
    """Yield the differences in tier-state partition ``only``, or in all of them if it is None.

    Memory: one tier-state partition of each view at a time.
    """
    numbers = {number for view in (left, right) for number, _ in view.entries(only)}
    for number in sorted(numbers):
        ours = {entry.key: (entry.position, entry.value) for _, entry in left.entries(number)}
        theirs = {entry.key: (entry.position, entry.value) for _, entry in right.entries(number)}
        for key in sorted(ours.keys() | theirs.keys()):
            one, two = ours.get(key), theirs.get(key)
            if one != two:
                yield FactDifference(number, key, one[0] if one else None, two[0] if two else None)
