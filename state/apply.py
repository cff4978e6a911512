"""The incremental twin of `meaning`: what production runs. Equal to the definition after every step (property test).

A fact about a segment changes that segment alone. A `LeaderElected` may change every segment of its partition
(fencing, abandonment); elections are rare, so everything is worked out again then.
"""

from __future__ import annotations

from .facts import LeaderElected, LiveFact
from .ids import RemoteSegmentId, TopicIdPartition
from .meaning import Leaders, PartitionView, SegmentMeaning, assemble, segment_id_of, segment_meaning


class PartitionState:
    """The live set of one partition, and the caches its view is made from."""

    __slots__ = ("_by_segment", "_leaders", "_live", "_segments", "_view", "partition")

    def __init__(self, partition: TopicIdPartition) -> None:
        self.partition = partition
        self._live: dict[str, LiveFact] = {}
        self._by_segment: dict[RemoteSegmentId, dict[str, LiveFact]] = {}
        self._segments: dict[RemoteSegmentId, SegmentMeaning] = {}
        self._leaders = Leaders({})
        self._view: PartitionView | None = None

    def insert(self, live: LiveFact) -> None:
        """A fact landed under its key."""
        self.erase(live.key)
        self._live[live.key] = live
        segment_id = segment_id_of(live)
        if segment_id is not None:
            self._by_segment.setdefault(segment_id, {})[live.key] = live
        self._changed(live, segment_id)

    def erase(self, key: str) -> None:
        """A tombstone landed. Erasing what is not there changes nothing."""
        live = self._live.pop(key, None)
        if live is None:
            return
        segment_id = segment_id_of(live)
        if segment_id is not None:
            del self._by_segment[segment_id][key]
        self._changed(live, segment_id)

    def _changed(self, live: LiveFact, segment_id: RemoteSegmentId | None) -> None:
        self._view = None
        if isinstance(live.fact, LeaderElected):
            self._leaders = Leaders.among(self._live.values())
            for every in list(self._by_segment):
                self._work_out(every)
        elif segment_id is not None:
            self._work_out(segment_id)

    def _work_out(self, segment_id: RemoteSegmentId) -> None:
        facts = self._by_segment[segment_id]
        if facts:
            ordered = sorted(facts.values(), key=lambda live: live.position)
            self._segments[segment_id] = segment_meaning(segment_id, ordered, self._leaders)
        else:
            del self._by_segment[segment_id]
            self._segments.pop(segment_id, None)

    def facts(self) -> list[LiveFact]:
        """The live set, in order of position."""
        return sorted(self._live.values(), key=lambda live: live.position)

    def view(self) -> PartitionView:
        """The partition as it stands; the same object until something changes."""
        if self._view is None:
            self._view = assemble(self.partition, self.facts(), self._leaders, self._segments)
        return self._view
