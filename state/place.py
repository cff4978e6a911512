"""The partition to which a key of the tier-state topic belongs. Fast enough for every record of a replay.

`parse_key` is the definition. A key is *foreign* if `parse_key` refuses it, or if it maps to another tier-state
partition: tierstate did not write it and its meaning is unknown. While a foreign key is live, its complete tier-state
partition is degraded to read-only.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .errors import InvalidRequest
from .ids import TopicIdPartition
from .keys import TOPIC_META_KEY, parse_key, partition_of_key, tier_partition_of
from .offsets import Position

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
