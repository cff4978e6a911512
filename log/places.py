"""Check the offsets and leader epochs of batches against file names, adjacent batches and the epoch checkpoint.

A batch's base offset and leader epoch are outside its CRC: nothing in the batch shows that one of them was changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..state.epochs import Lineage
from ..state.errors import CorruptData
from ..state.offsets import Offset
from .batch import BatchHeader


@dataclass(slots=True)
class _EpochRun:
    """Consecutive batches of one leader epoch."""

    epoch: int
    file: str
    position: int
    first: int
    last: int


class BatchPlaces:
    """Checks offsets and leader epochs. Pass the batches of adjacent files through `follow` in order, then `check` all.

    Memory: some 200 bytes for each leader epoch.
    """

    def __init__(self) -> None:
        self._runs: list[_EpochRun] = []

    def follow(
        self, batches: Iterator[BatchHeader], source: str, base: Offset, following: Offset | None
    ) -> Iterator[BatchHeader]:
        """Yield the batches of one file. Raises CorruptData if a batch lies outside [``base``, ``following``), or if
        its leader epoch is lower than that of the batch before. If ``following`` is None, there is no upper bound."""
        for batch in batches:
            if batch.base_offset < base:
                raise self._wrong("batch lies below its segment's base offset", source, batch, base_offset=base)
            if following is not None and batch.last_offset >= following:
                raise self._wrong("batch reaches into the next segment", source, batch, next_segment=following)
            self._add(batch, source)
            yield batch

    def _add(self, batch: BatchHeader, source: str) -> None:
        epoch, newest = batch.partition_leader_epoch, self._runs[-1] if self._runs else None
        if newest is None or epoch > newest.epoch:
            self._runs.append(_EpochRun(epoch, source, batch.position, batch.base_offset, batch.last_offset))
        elif epoch < newest.epoch:
            raise self._wrong("leader epochs go back", source, batch, epoch=epoch, before=newest.epoch)
        else:
            newest.last = batch.last_offset

    def check(self, checkpoint: Lineage) -> None:
        """Compare the batches' leader epochs with the checkpoint. Offsets below its first entry (the log start offset)
        are not compared. Raises CorruptData."""
        for run in self._runs:
            says = {checkpoint.epoch_at(run.first), checkpoint.epoch_at(run.last)} - {None, run.epoch}
            if says:
                raise CorruptData(
                    "batches are of another leader epoch than the checkpoint says",
                    file=run.file,
                    position=run.position,
                    offsets=f"{run.first}..{run.last}",
                    leader_epoch=run.epoch,
                    checkpoint=says.pop(),
                )

    @staticmethod
    def _wrong(what: str, source: str, batch: BatchHeader, **facts: object) -> CorruptData:
        return CorruptData(what, file=source, position=batch.position, offset=batch.base_offset, **facts)
