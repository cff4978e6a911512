"""The steps of the restore into one target partition, as objects: what was begun, by whom, and the offset map.

    0        begin: the source partition, its first offset, and the target's end before the restore
    n        term: the producer id of a process that restores from here on
    n        ranges: records that are in the target, and the offsets up to which both logs are done

A step is one put-if-absent of the next number, so the steps are one sequence, whatever number of processes write. A
process whose number is taken is no longer the newest: it ends, or reads the steps again before its first record.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..state.errors import CorruptData, Fenced, ObjectExists
from ..state.offsets import Offset
from ..storage.object_store import ObjectStore
from .names import step_key, step_number
from .offset_map import MappedRange, merged


@dataclass(frozen=True, slots=True)
class Origin:
    """The partition that is restored. ``cluster_id``: of the cluster in which it was written."""

    cluster_id: str
    topic: str
    topic_id: str
    partition: int


@dataclass(slots=True)
class Progress:
    """The state after all steps. ``source_end``: the source offset at which the restore goes on. ``target_end``: the
    end of the records in ``ranges``. ``producers``: the producer ids of all terms. ``following``: the next step's
    number.
    """

    origin: Origin
    source_start: Offset
    source_end: Offset
    target_start: Offset
    target_end: Offset
    producers: set[int] = field(default_factory=set)
    ranges: list[MappedRange] = field(default_factory=list)
    following: int = 1


class Ledger:
    """The steps below one prefix."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store, self._prefix = store, prefix

    def read(self) -> Progress | None:
        """Return what the steps say, or None before the first. Raises CorruptData if a step is missing or damaged."""
        keys = [each.key for each in self._store.list(self._prefix)]
        numbers = [number for key in keys if (number := step_number(self._prefix, key)) is not None]
        if numbers != list(range(len(numbers))):
            raise CorruptData("a step of this restore is missing", file=self._prefix, steps=len(numbers))
        progress = None
        for number in numbers:
            key = step_key(self._prefix, number)
            try:
                progress = _after(progress, json.loads(self._store.get(key)))
            except (ValueError, KeyError, TypeError) as error:
                raise CorruptData("not a step of a restore", file=key) from error
        if progress is not None:
            progress.ranges = merged(progress.ranges)
        return progress

    def begin(self, origin: Origin, source_start: Offset, target_start: Offset) -> Progress:
        """Put the first step. Raises Fenced if another restore into this partition has begun."""
        self._put(0, {"begin": asdict(origin), "source_start": source_start, "target_start": target_start})
        return Progress(origin, source_start, source_start, target_start, target_start)

    def add_term(self, progress: Progress, producer_id: int) -> None:
        """Put a term. Raises Fenced if another process was faster: read the steps again."""
        self._put(progress.following, {"term": producer_id})
        progress.producers.add(producer_id)
        progress.following += 1

    def add_ranges(self, progress: Progress, ranges: Sequence[MappedRange], source_end: Offset) -> None:
        """Put ranges whose records every in-sync replica has. Raises Fenced if another restore has begun."""
        target_end = ranges[-1].target_end if ranges else progress.target_end
        self._put(progress.following, {"ranges": ranges, "source_end": source_end, "target_end": target_end})
        progress.ranges = merged([*progress.ranges, *ranges])
        progress.source_end, progress.target_end = source_end, target_end
        progress.following += 1

    def _put(self, number: int, step: dict[str, Any]) -> None:
        key = step_key(self._prefix, number)
        try:
            self._store.put_if_absent(key, json.dumps(step, separators=(",", ":")).encode())
        except ObjectExists as error:
            raise Fenced("another restore into this partition has begun", step=key) from error


def _after(progress: Progress | None, step: dict[str, Any]) -> Progress:
    """Return the progress after this step. Raises KeyError, TypeError or ValueError for an object that is no step."""
    if progress is None:
        start, target = Offset(step["source_start"]), Offset(step["target_start"])
        return Progress(Origin(**step["begin"]), start, start, target, target)
    if "term" in step:
        progress.producers.add(int(step["term"]))
    else:
        progress.ranges += [MappedRange(Offset(a), Offset(b), Offset(c), int(n)) for a, b, c, n in step["ranges"]]
        progress.source_end, progress.target_end = Offset(step["source_end"]), Offset(step["target_end"])
    progress.following += 1
    return progress
