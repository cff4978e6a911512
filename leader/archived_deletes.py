"""Find segments whose facts were erased and that the archive shows as deleted, by an accepted delete-finished."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..rules.sweep import is_deleted
from ..schemas.codec import decode_fact
from ..state.apply import PartitionState
from ..state.facts import LiveFact
from ..state.ids import RemoteSegmentId, TopicIdPartition
from ..state.keys import KeyKind
from ..state.object_keys import not_own
from ..state.view import Entry
from .recover_archive import about_partitions


def deleted_in(
    entries: Iterable[Entry], targets: Collection[tuple[TopicIdPartition, RemoteSegmentId]]
) -> dict[tuple[TopicIdPartition, RemoteSegmentId], str]:
    """Return the segments of ``targets`` that are deleted, with the base key of their own objects.

    ``entries``: the whole history of a tier-state partition, tombstones included, as it was archived. Facts count even
    if a tombstone erased them: otherwise nothing would be left to find. Terms are read too: they show which deletes
    were accepted. Memory: the terms of the partitions in ``targets``, and the facts of its segments. Raises
    CorruptData for a key that no release of tierstate writes, because its meaning is unknown.
    """
    states = {partition: PartitionState(partition) for partition, _ in targets}
    segments = frozenset(targets)
    for key, entry in about_partitions(entries):
        if entry.value is None or key.partition not in states:
            continue
        of_segment = key.segment_id is not None and (key.partition, key.segment_id) in segments
        if of_segment or key.kind is KeyKind.LEADER:
            fact = decode_fact(entry.key, entry.value)
            states[key.partition].insert(LiveFact(entry.key, entry.position, fact))
    base_keys = {}
    for partition, state in states.items():
        for segment_id, segment in state.view().segments.items():
            subject = segment.subject
            if subject is not None and is_deleted(segment) and not_own(subject) is None:
                base_keys[partition, segment_id] = subject.object_key
    return base_keys
