"""Where a key of the tier-state topic belongs, fast enough to be asked for every record of a replay.

`parse_key` is the definition. A key that it refuses, or that stands in a tier-state partition to which it does not map,
is *foreign*: nobody of ours wrote it, nothing says what it means, and while it stands there its whole tier-state
partition is degraded read-only.
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
"""What follows ``T/P/``. Accepts less than `parse_key`, never more: what it does not accept is parsed."""


class Place(NamedTuple):
    """``partition``: whose fact it is; None for ``meta/topic`` and foreign keys. ``foreign``: why it is nobody's."""

    partition: TopicIdPartition | None
    foreign: str | None = None


_META = Place(None)


class Places:
    """``partitions``: the number that maps keys; None when it does not matter where a key stands (a twin in a test)."""

    def __init__(self, partitions: int | None = None) -> None:
        self._partitions = partitions
        self._known: dict[str, tuple[int | None, Place]] = {}

    def of(self, tier_partition: int, key: str) -> Place:
        """Never raises, whatever the key is."""
        cut = key.find("/", key.find("/") + 1)
        known = self._known.get(key[:cut]) if cut > 0 else None
        if known is None or _SURELY_OURS.fullmatch(key, cut + 1) is None:
            try:
                known = self._parsed(key, cut)
            except InvalidRequest as error:
                return Place(None, str(error))
        number, place = known
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
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[key[:cut]] = number, Place(partition)
        return self._known[key[:cut]]

    def sentence(self, tier_partition: int, key: str, position: Position) -> str:
        """Why a foreign key degrades the tier-state partition it stands in, and where."""
        reason = self.of(tier_partition, key).foreign
        return f"foreign record: {reason} tier_partition={tier_partition} position={position} key={key!r}"
