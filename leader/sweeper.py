"""Sweep objects that outlived their facts: what landed after its segment was deleted.

    LIST  →  a view captured after it  →  classify  →  the grace  →  all of it again  →  delete

Nothing is condemned by the absence of a fact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..runtime.listener import Listener, OrphansFound
from ..state.errors import Fenced
from ..state.ids import RemoteSegmentId
from ..state.partition_view import PartitionView
from ..storage.object_store import ObjectInfo, ObjectStore
from ..storage.segment.keys import ObjectKeys
from .act import Act
from .expirer import trusted_view
from .sweep_rule import Finding, classify
from .term import Reign


@dataclass(frozen=True, slots=True)
class SweepTools:
    """What every sweep of this agent uses. ``grace_s``: between the two looks that condemn an object.

    ``condemned_in_archive``: whether the archive of this very tier-state topic has an accepted delete of a segment id.
    """

    store: ObjectStore
    keys: ObjectKeys
    condemned_in_archive: Callable[[RemoteSegmentId], bool]
    grace_s: float
    listener: Listener


def list_then_read(reign: Reign, store: ObjectStore, prefix: str) -> tuple[list[ObjectInfo], PartitionView]:
    """Objects first, facts second*: an object is written after the fact that names it, so every object listed here that
    some attempt of any agent wrote has its fact in this view.
    """
    listed = list(store.list(prefix))
    return listed, reign.view(max_age=0)


def look_for_orphans(reign: Reign, tools: SweepTools) -> list[Finding]:
    """One look at the partition's objects; deletes nothing."""
    prefix = tools.keys.partition_prefix(reign.name, reign.partition.topic_id, reign.partition.partition)
    listed, view = list_then_read(reign, tools.store, prefix)
    findings = classify(listed, tools.keys, view, tools.condemned_in_archive)
    orphans = [each for each in findings if not each.condemned]
    tools.listener(
        OrphansFound(
            reign.partition,
            reign.name,
            objects=len(orphans),
            bytes=sum(each.found.size for each in orphans),
            condemned=len(findings) - len(orphans),
        )
    )
    return findings


def sweep_orphans(reign: Reign, tools: SweepTools, first_seen: Mapping[str, float]) -> Act[dict[str, float]]:
    """One look, and the deletion of what was condemned for the whole grace; what to hand to the next sweep.

    ``first_seen``: object key to when (monotonic seconds) this process first found it condemned; empty at first.
    Raises Fenced when the term no longer rules or something must be cleared up by somebody.
    """
    trusted_view(reign)
    now = reign.seat.clock.monotonic()
    condemned = [each for each in look_for_orphans(reign, tools) if each.condemned]
    seen = {each.found.key: first_seen.get(each.found.key, now) for each in condemned}
    for each in condemned:
        if now - seen[each.found.key] < tools.grace_s:
            continue
        yield "delete orphan"
        again = classify([each.found], tools.keys, trusted_view(reign), tools.condemned_in_archive)
        if not again or not again[0].condemned:
            raise Fenced("the object is not condemned any more", partition=reign.partition, object=each.found.key)
        reign.confirm_leadership()
        tools.store.delete(each.found.key)
        del seen[each.found.key]
    return seen
