"""Leader epochs and the lineage of a log: which epoch owns which offsets.

The rules are those of Kafka's ``LeaderEpochFileCache``: an epoch begins at its start offset and ends where the next
epoch begins. Epochs and start offsets both increase.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import NewType

from .errors import InvalidRequest
from .offsets import Offset, OffsetRange

LeaderEpoch = NewType("LeaderEpoch", int)

TERMINAL_EPOCH = LeaderEpoch(2**31 - 1)
"""The epoch of the custodian's last term on a deleted partition."""


@dataclass(frozen=True, slots=True, order=True)
class EpochEntry:
    """A leader epoch and its first offset, as in Kafka's epoch checkpoint."""

    epoch: LeaderEpoch
    start_offset: Offset


@dataclass(frozen=True, slots=True)
class Lineage:
    """The epochs of one log, in order. The epochs of offsets below the first entry are unknown."""

    entries: tuple[EpochEntry, ...] = ()

    def __post_init__(self) -> None:
        if len(self.entries) < 2:
            return
        for before, after in zip(self.entries, self.entries[1:], strict=False):
            if after.epoch <= before.epoch or after.start_offset < before.start_offset:
                raise InvalidRequest("leader epochs and their start offsets must increase", before=before, after=after)

    @classmethod
    def of(cls, *pairs: tuple[int, int]) -> Lineage:
        """Build a lineage from pairs of epoch and start offset: ``Lineage.of((0, 0), (2, 10))``."""
        return cls(tuple(EpochEntry(LeaderEpoch(epoch), Offset(start)) for epoch, start in pairs))

    @property
    def last_epoch(self) -> LeaderEpoch | None:
        return self.entries[-1].epoch if self.entries else None

    @property
    def first_offset(self) -> Offset | None:
        return self.entries[0].start_offset if self.entries else None

    def epoch_at(self, offset: int) -> LeaderEpoch | None:
        """Return the epoch that owns this offset, or None below the first entry."""
        at = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset)
        return self.entries[at - 1].epoch if at else None

    def owned_by(self, epoch: LeaderEpoch) -> tuple[Offset, Offset | None] | None:
        """Return ``(start, stop)`` of this epoch; None if it is absent. ``stop`` (exclusive) is None for the last."""
        at = bisect_left(self.entries, epoch, key=lambda entry: entry.epoch)
        if at == len(self.entries) or self.entries[at].epoch != epoch:
            return None
        stop = self.entries[at + 1].start_offset if at + 1 < len(self.entries) else None
        return self.entries[at].start_offset, stop

    def within(self, offsets: OffsetRange) -> Lineage:
        """Return the entries that own offsets of this range. The first entry is moved up to the start of the range.

        Kafka's ``epochEntriesInRange``: ``{0:0, 2:10, 5:100}`` over 50..149 is ``{2:50, 5:100}``.
        """
        inside = []
        for at, entry in enumerate(self.entries):
            following = self.entries[at + 1].start_offset if at + 1 < len(self.entries) else None
            if entry.start_offset > offsets.end or (following is not None and following <= offsets.start):
                continue
            inside.append(EpochEntry(entry.epoch, max(entry.start_offset, offsets.start)))
        return Lineage(tuple(inside))

    def up_to(self, end: Offset) -> Lineage:
        """Return the entries that begin at or below ``end``."""
        return Lineage(tuple(entry for entry in self.entries if entry.start_offset <= end))
