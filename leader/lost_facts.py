"""Look in the bucket for segments whose facts were lost.

The partition's folders are listed at the start, then once an hour. They are also listed if offsets are in no tier (a
view rebuilt from a shorter topic), or if the bucket lost an object of this process. A manifest is read only if no fact
shows the outcome of its segment's copy. The orphan sweeps report readable segments that are not listed. Rules marked *
are in `docs/tier-state.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial

from ..rules.lost_facts import LostFacts, holes, is_unknown, lost_facts, why_lost
from ..rules.reasons import Reason, Why
from ..rules.recovery import FoundSegment
from ..rules.sweep import ArchivedDeletes, no_archived_deletes
from ..runtime.listener import Listener, OperationFailed
from ..state.errors import TierstateError
from ..state.ids import RemoteSegmentId, TopicIdPartition
from ..state.object_keys import ObjectKeys, ObjectName
from ..state.offsets import Offset, OffsetRange
from ..state.partition_view import PartitionView
from ..state.segment import SegmentState
from ..storage.object_store import ObjectReader
from .recover_scan import said_by, scan_bucket
from .sweeper import AGAIN_S, folders_of, until_turn
from .term import TermContext

LOOK_EVERY_S = 3_600.0

LeftBehind = Callable[[], Collection[RemoteSegmentId]]
"""Returns the segments of incarnations that a person gave up: they prove no loss. Raises the store's errors."""


@dataclass(frozen=True, slots=True)
class LostFactsTools:
    """The tools that every look for lost facts uses."""

    store: ObjectReader
    keys: ObjectKeys
    cluster_id: str
    archived_deletes: ArchivedDeletes = no_archived_deletes
    left_behind: LeftBehind = lambda: ()
    heartbeats_lost: Callable[[], int] = lambda: 0
    """Returns how often the bucket lacked this process's last heartbeat: the bucket may have been rolled back."""


def look_for_lost_facts(
    tools: LostFactsTools,
    name: str,
    before: PartitionView,
    fresh_view: Callable[[], PartitionView],
    local_start: Offset | None,
) -> LostFacts:
    """List the objects, then compare them with a new view*, which has the facts of copies that end during the listing.

    Writes nothing. ``local_start``: the broker's log start, requested before this call; None if unknown. Raises
    Unavailable kinds, AccessDenied, ViewBehind.
    """
    listing = list_segments(tools, name, before)
    view, unknown = fresh_view(), listing.unknown
    history = said_by(view)
    left_behind: Collection[RemoteSegmentId] = ()
    if unknown:
        left_behind = tools.left_behind()
        deleted = tools.archived_deletes(view.partition, [each.segment.segment_id for each in unknown])
        deleted_states = dict.fromkeys(deleted, SegmentState.DELETE_SEGMENT_FINISHED)
        history = replace(history, states={**history.states, **deleted_states})
    unlisted = {each.segment_id for each in before.readable if each.object_key not in listing.base_keys}
    is_missing = any(each.segment_id in unlisted for each in view.readable)
    return replace(lost_facts(view, unknown, history, local_start, left_behind), is_segment_missing=is_missing)


@dataclass(frozen=True, slots=True)
class ListedSegments:
    """The listed segments. ``unknown``: complete segments whose copy has no known outcome. ``base_keys``: all."""

    unknown: list[FoundSegment]
    base_keys: set[str]


def list_segments(tools: LostFactsTools, name: str, view: PartitionView) -> ListedSegments:
    """List the segments of a partition of this cluster, with facts ``view``. Raises Unavailable kinds, AccessDenied."""
    base_keys: set[str] = set()

    def is_wanted(base: str) -> bool:
        base_keys.add(base)
        named = ObjectName.parse(base)
        return named is not None and is_unknown(view.segments, named.segment_id)

    segments: dict[str, FoundSegment] = {}
    for folder in folders_of(tools.keys, name, view):
        for finding in scan_bucket(tools.store, folder, is_wanted):
            if not isinstance(finding, FoundSegment) or finding.cluster_id != tools.cluster_id:
                continue
            if finding.segment.partition == view.partition:
                segments[finding.segment.object_key] = finding
    return ListedSegments(list(segments.values()), base_keys)


class LostFactsWatch:
    """Watches one partition of topic ``name``. Calls ``segment_missing`` if a readable segment is not listed."""

    def __init__(
        self,
        context: TermContext,
        partition: TopicIdPartition,
        name: str,
        tools: LostFactsTools,
        listener: Listener,
        segment_missing: Callable[[], None] = lambda: None,
    ) -> None:
        self._context, self._partition, self._name, self._tools = context, partition, name, tools
        self._listener, self._segment_missing = listener, segment_missing
        self._heartbeats_lost = 0
        self._due = context.clock.monotonic()
        self._holes: list[OffsetRange] = []
        self._looked = False
        self._why: Why | None = None

    def rest(self) -> None:
        """Reset the watch while this broker does not lead. A look is due at once when the broker leads again."""
        self._due, self._holes, self._looked, self._why = self._context.clock.monotonic(), [], False, None

    def why(self, view: PartitionView, local_start: Offset) -> Why | None:
        """Look if that is due. Return why nothing may be deleted, or None. Report tierstate errors, do not raise."""
        empty = holes(view, local_start)
        if not empty:
            self._why = None  # the segments were recovered, or are below the log start by now
        if empty != self._holes:
            self._holes, self._looked, self._due = empty, False, self._context.clock.monotonic()
        if (lost := self._tools.heartbeats_lost()) != self._heartbeats_lost:
            self._heartbeats_lost, self._due = lost, self._context.clock.monotonic()
        if view.log_starts and self._context.clock.monotonic() >= self._due:
            self._look(view, local_start)
        if empty and not self._looked:
            sentence = f"offsets {empty[0]} are in no tier, and the bucket was not asked for segments without facts yet"
            return Why(Reason.TIER_STATE_LOST, sentence)
        return self._why

    def _look(self, view: PartitionView, local_start: Offset) -> None:
        clock = self._context.clock
        try:
            fresh_view = partial(self._context.fresh_view, self._partition)
            lost = look_for_lost_facts(self._tools, self._name, view, fresh_view, local_start)
        except TierstateError as error:
            self._due = clock.monotonic() + AGAIN_S
            self._listener(OperationFailed(self._partition, self._name, "look for lost facts", str(error)))
            return
        self._looked, self._why = True, why_lost(lost, self._name)
        if lost.is_segment_missing:
            self._segment_missing()
        self._due = clock.monotonic() + until_turn(self._partition, clock.now_ms(), LOOK_EVERY_S)
