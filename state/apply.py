"""Computes a view as `meaning` defines it, but incrementally. A property test compares both after every fact.

A fact about a segment changes that segment alone. A `LeaderElected` may change every segment of its partition (fencing,
abandonment). Changes are only noted, and the view is computed when a caller requests it. So a replay of a million facts
and a thousand elections computes everything once. After one more fact about a segment, a new view copies lists of
segments, but recomputes and sorts nothing else.
"""

from __future__ import annotations

import threading
from operator import attrgetter

from .facts import LiveFact
from .fencing import Leaders, term_begun
from .ids import RemoteSegmentId, TopicIdPartition
from .lifecycle import segment_id_of, segment_meaning
from .meaning import assemble
from .partition_view import PartitionView, SegmentMeaning
from .sorting import SortingTable

_by_position = attrgetter("position")


class PartitionState:
    """The live set of one partition, and the caches from which its view is computed. Thread-safe."""

    __slots__ = (
        "_by_segment",
        "_changed",
        "_elected",
        "_leaders",
        "_live",
        "_lock",
        "_others",
        "_segments",
        "_stale",
        "_view",
        "partition",
    )

    def __init__(self, partition: TopicIdPartition) -> None:
        self.partition = partition
        self._live: dict[str, LiveFact] = {}
        self._others: dict[str, LiveFact] = {}
        self._by_segment: dict[RemoteSegmentId, dict[str, LiveFact]] = {}
        self._segments = SortingTable()
        self._leaders = Leaders.among(())
        self._lock = threading.Lock()
        self._changed: set[RemoteSegmentId] = set()
        self._elected = False
        self._stale = False
        self._view = PartitionView(partition)

    def insert(self, live: LiveFact) -> None:
        """Add a fact under its key. It replaces the fact that has the same key."""
        segment_id = segment_id_of(live)
        with self._lock:
            if live.key in self._live:
                self._remove(live.key)
            self._live[live.key] = live
            if segment_id is None:
                self._others[live.key] = live
            else:
                self._by_segment.setdefault(segment_id, {})[live.key] = live
            self._note(live, segment_id)

    def erase(self, key: str) -> None:
        """Apply a tombstone. A key that is not in the live set is ignored."""
        with self._lock:
            self._remove(key)

    def _remove(self, key: str) -> None:
        live = self._live.pop(key, None)
        if live is None:
            return
        segment_id = segment_id_of(live)
        if segment_id is None:
            del self._others[key]
        else:
            del self._by_segment[segment_id][key]
        self._note(live, segment_id)

    def _note(self, live: LiveFact, segment_id: RemoteSegmentId | None) -> None:
        self._stale = True
        if segment_id is not None:
            self._changed.add(segment_id)
        elif term_begun(live) is not None:
            self._elected = True

    def _recompute(self) -> None:
        """Recompute the leaders and the segments that changed since the last view."""
        if self._elected:
            self._leaders = Leaders.among(self._others.values())
            self._changed.update(self._by_segment)
        changed: dict[RemoteSegmentId, SegmentMeaning | None] = {}
        for segment_id in self._changed:
            facts = self._by_segment[segment_id]
            if facts:
                ordered = sorted(facts.values(), key=_by_position)
                changed[segment_id] = segment_meaning(segment_id, ordered, self._leaders)
            else:
                del self._by_segment[segment_id]
                changed[segment_id] = None
        self._segments.put(changed)
        self._changed.clear()
        self._elected = False

    @property
    def fact_count(self) -> int:
        """Return the number of facts in the live set."""
        return len(self._live)

    def facts(self) -> list[LiveFact]:
        """Return the live set, in order of position."""
        with self._lock:
            facts = list(self._live.values())
        return sorted(facts, key=_by_position)

    def view(self) -> PartitionView:
        """Return the current view of the partition. It is the same object until a fact changes."""
        with self._lock:
            if self._stale:
                self._recompute()
                others = sorted(self._others.values(), key=_by_position)
                segments = self._segments.sorted_out(self._leaders.lineage)
                self._view = assemble(self.partition, others, self._leaders, segments)
                self._stale = False
            return self._view
