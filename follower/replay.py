"""Replay: apply the topic to a store, from where the store stands up to captured ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from ..broker.tier_topic import TierTopic
from ..state.offsets import Position
from ..state.view import Entry, ViewStore


def catch_up(
    topic: TierTopic,
    store: ViewStore,
    ends: Mapping[int, Position],
    stop: threading.Event | None = None,
    *,
    keep: Callable[[int, Entry], bool] | None = None,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Apply everything below ``ends``; returns the number of records read.

    ``keep`` drops entries before they are applied (a view from which a fact is withheld is how `diff` is tested).
    Ends early, without an error, when ``stop`` is set.
    """
    behind = {number: end for number, end in ends.items() if store.position(number) < end}
    if not behind:
        return 0
    reader = topic.reader({number: store.position(number) for number in behind})
    read = 0
    try:
        while behind and not (stop and stop.is_set()):
            for batch in reader.poll(0.2):
                number = batch.tier_partition
                end = ends[number]
                entries = [entry for entry in batch.entries if entry.position < end]
                kept = entries if keep is None else [entry for entry in entries if keep(number, entry)]
                store.apply(number, kept, Position(min(batch.following, end)))
                read += len(entries)
                if store.position(number) >= end:
                    behind.pop(number, None)
                if progress:
                    progress(read)
    finally:
        reader.close()
    return read
