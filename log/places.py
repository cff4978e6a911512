"""Whether batches lie where their files' names, their neighbours and the leader epochs have them.

A batch's base offset and leader epoch are outside its CRC: nothing in the batch tells that one of them was changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..state.epochs import Lineage
from ..state.errors import CorruptData
from ..state.offsets import Offset
from .batch import BatchHeader


@dataclass(slots=True)
class _Reign:
    """Batches of one leader epoch, one behind the other."""

    epoch: int
    file: str
    position: int
    first: int
    last: int


class BatchPlaces:
    """Push the batches of neighbouring files in order, each file by a `follow`; then `check` against the checkpoint.

    Memory: some 200 bytes for each leader epoch.
    """

    def __init__(self) -> None:
        self._reigns: list[_Reign] = []

    def follow(
        self, batches: Iterator[BatchHeader], source: str, base: Offset, following: Offset | None
    ) -> Iterator[BatchHeader]:
        """The batches of one file, which begins at ``base``; the next one at ``following``. Raises CorruptData."""
        for batch in batches:
            if batch.base_offset < base:
                raise self._wrong("batch lies below its segment's base offset", source, batch, base_offset=base)
            if following is not None and batch.last_offset >= following:
                raise self._wrong("batch reaches into the next segment", source, batch, next_segment=following)
            self._add(batch, source)
            yield batch

    def _add(self, batch: BatchHeader, source: str) -> None:
        epoch, newest = batch.partition_leader_epoch, self._reigns[-1] if self._reigns else None
        if newest is None or epoch > newest.epoch:
            self._reigns.append(_Reign(epoch, source, batch.position, batch.base_offset, batch.last_offset))
        elif epoch < newest.epoch:
            raise self._wrong("leader epochs go back", source, batch, epoch=epoch, before=newest.epoch)
        else:
            newest.last = batch.last_offset

    def check(self, checkpoint: Lineage) -> None:
        """Below its first entry, which is at the log start, a checkpoint knows nothing. Raises CorruptData."""
        for reign in self._reigns:
            says = {checkpoint.epoch_at(reign.first), checkpoint.epoch_at(reign.last)} - {None, reign.epoch}
            if says:
                raise CorruptData(
                    "batches are of another leader epoch than the checkpoint says",
                    file=reign.file,
                    position=reign.position,
                    offsets=f"{reign.first}..{reign.last}",
                    leader_epoch=reign.epoch,
                    checkpoint=says.pop(),
                )

    @staticmethod
    def _wrong(what: str, source: str, batch: BatchHeader, **facts: object) -> CorruptData:
        return CorruptData(what, file=source, position=batch.position, offset=batch.base_offset, **facts)
