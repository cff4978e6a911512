"""Sweep objects that outlived their facts: those that landed after their segment was deleted, and unfinished uploads.

    LIST  →  a view captured after it  →  classify  →  the grace  →  all of it again  →  delete

A *condemned* object may be deleted after the grace. No object is condemned because a fact is absent. A look lists the
partition's folders and needs no term. Looks are a day apart, or a grace if that is shorter. Each partition has its own
times for looks, which a restart does not change. Rules marked * are in `docs/tier-state.md`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from ..rules.missing import MissingObject, missing_objects
from ..rules.sweep import ArchivedDeletes, Leftover, UnneededObject, classify, classify_uploads
from ..runtime.listener import Listener, OperationFailed, OrphansFound
from ..runtime.operation import Operation
from ..state.errors import UNNAMED_STORE, Fenced, ObjectNotFound, TierstateError
from ..state.ids import TopicIdPartition
from ..state.object_keys import ObjectKeys, folder_of, keys_below, not_own
from ..state.objects import ObjectInfo, UnfinishedUpload
from ..state.offsets import TimestampMs
from ..state.partition_view import PartitionView
from ..storage.object_store import ObjectReader, ObjectStore
from .expirer import NO_QUARANTINE, Quarantine, last_look, trusted_view
from .term import TermContext, TermSession


@dataclass(frozen=True, slots=True)
class SweepTools:
    """The tools that every sweep of this agent uses. ``grace_s``: the time between the two looks at an object."""

    store: ObjectStore
    keys: ObjectKeys
    archived_deletes: ArchivedDeletes
    grace_s: float
    listener: Listener
    quarantine: Quarantine = NO_QUARANTINE


@dataclass(frozen=True, slots=True)
class SweepFindings:
    """The result of one look at a partition. ``listed``: all its objects. ``view`` was captured after the listing.

    ``uploads_unseen``: why unfinished uploads could not be listed; None if they were. ``missing``: objects of readable
    segments that are missing or have another size.
    """

    view: PartitionView
    listed: tuple[ObjectInfo, ...]
    findings: tuple[UnneededObject, ...]
    leftovers: tuple[Leftover, ...]
    uploads_unseen: str | None = None
    missing: tuple[MissingObject, ...] = ()

    @property
    def orphans(self) -> list[UnneededObject]:
        """Return the objects that no fact names."""
        return [each for each in self.findings if not each.condemned]

    @property
    def condemned(self) -> dict[str, UnneededObject | Leftover]:
        """Return the condemned items by object key or upload id. A segment's manifest precedes its other objects."""
        objects: dict[str, UnneededObject | Leftover] = {
            each.info.key: each for each in self.findings if each.condemned
        }
        return objects | {each.upload.upload_id: each for each in self.leftovers if each.condemned}


def folders_of(keys: ObjectKeys, name: str, view: PartitionView) -> dict[str, ObjectKeys]:
    """Return the folders of a partition's objects, each with the `ObjectKeys` that parses the names in the folder.

    These are the current folder and those below every earlier prefix and salt that the partition's facts name.
    """
    partition = view.partition
    folders = {keys.partition_prefix(name, partition.topic_id, partition.partition): keys}
    for segment in view.segments.values():
        if segment.subject is None or not_own(segment.subject) is not None:
            continue
        folder = folder_of(segment.subject.object_key)
        if folder not in folders and (below := keys_below(folder, name, partition)) is not None:
            folders[folder] = below
    return folders


def look(
    tools: SweepTools,
    name: str,
    before: PartitionView,
    fresh_view: Callable[[], PartitionView],
    now_ms: TimestampMs,
) -> SweepFindings:
    """List and classify the objects; write nothing. ``before``: an earlier view, which shows the folders to list.

    The view is captured after the listing*. An attempt writes its objects after the fact that names them, so the view
    has the facts of all listed objects of any attempt. Raises Unavailable kinds, AccessDenied.
    """
    folders = folders_of(tools.keys, name, before)
    objects = {folder: _listed(tools.store, folder, folders) for folder in folders}
    uploads: dict[str, list[UnfinishedUpload]] = {}
    unseen = None
    try:
        uploads = {folder: list(tools.store.unfinished_uploads(folder)) for folder in folders}
    except TierstateError as error:  # the permissions may not cover uploads; objects are checked all the same
        unseen = str(error)
    view = fresh_view()
    older_than = TimestampMs(round(now_ms - tools.grace_s * 1000))
    findings: list[UnneededObject] = []
    leftovers: list[Leftover] = []
    for folder, keys in folders.items():
        findings += classify(objects[folder], keys, view, tools.archived_deletes)
        leftovers += classify_uploads(uploads.get(folder, ()), keys, view, tools.archived_deletes, older_than)
    everything = tuple(each for some in objects.values() for each in some)
    missing = tuple(
        each
        for each in missing_objects(before, view, everything, folders)
        if each.size is not None or _is_nowhere(tools.store, each.key)
    )
    return SweepFindings(view, everything, tuple(findings), tuple(leftovers), unseen, missing)


def _is_nowhere(store: ObjectReader, key: str) -> bool:
    """Return whether no store has the object. A store of topics that is away, or that no rule names, may have it."""
    try:
        store.head(key)
    except ObjectNotFound as error:
        return UNNAMED_STORE not in error.facts
    return False


def _listed(store: ObjectReader, folder: str, folders: Iterable[str]) -> list[ObjectInfo]:
    """List a folder without the folders inside it, which are listed separately: earlier prefixes may be nested."""
    inner = tuple(each for each in folders if each != folder and each.startswith(folder))
    return [each for each in store.list(folder) if not (inner and each.key.startswith(inner))]


def delete_orphan(
    tools: SweepTools,
    item: UnneededObject | Leftover,
    name: str,
    trusted: Callable[[], PartitionView],
    *,
    condemned_only: bool = True,
) -> None:
    """Delete the orphan, or move it to the quarantine, right after classifying it again.

    ``trusted`` returns a view as of now that an operation may rely on. Without ``condemned_only``, a person named the
    orphan, and it is sufficient that no fact names it. Raises Fenced if the object must stay, and ``trusted``'s errors.
    """
    _judge_again(tools, item, name, trusted(), condemned_only)
    if isinstance(item, Leftover):
        tools.store.abort_upload(item.upload)
        return
    if tools.quarantine:
        try:
            tools.quarantine.keep(tools.store, item.info.key)
        except ObjectNotFound:
            return
        _judge_again(tools, item, name, trusted(), condemned_only)  # the copy may have taken long
    tools.store.delete(item.info.key)


def _judge_again(
    tools: SweepTools, item: UnneededObject | Leftover, name: str, view: PartitionView, condemned_only: bool
) -> None:
    key = item.upload.key if isinstance(item, Leftover) else item.info.key
    folders = folders_of(tools.keys, name, view)
    inside = [folder for folder in folders if key.startswith(folder)]
    keys = folders[max(inside, key=len)] if inside else tools.keys
    again: UnneededObject | Leftover | None
    if isinstance(item, Leftover):
        older_than = TimestampMs(item.upload.started_at + 1)
        again = next(iter(classify_uploads([item.upload], keys, view, tools.archived_deletes, older_than)), None)
    else:
        again = next(iter(classify([item.info], keys, view, tools.archived_deletes)), None)
    if again is None or (condemned_only and not again.condemned):
        raise Fenced("the object is not condemned any more", topic=view.topic, partition=view.partition, object_key=key)


LOOK_EVERY_S = 86_400.0
LEAST_S = 1.0
AGAIN_S = 600.0
"""The wait after a look that failed, or that found objects missing."""


def until_turn(partition: TopicIdPartition, now_ms: TimestampMs, every_s: float) -> float:
    """Return the seconds until this partition's next time. Times are evenly spread, and equal in every process."""
    share = zlib.crc32(str(partition).encode()) / 2**32
    return (1 - (now_ms / 1000 / every_s - share) % 1) * every_s


class OrphanSweeps:
    """Finds and sweeps the orphans of one partition of topic ``name``. Used by one thread at a time.

    This process deletes only orphans that it saw condemned for the whole grace, not by an earlier process.
    """

    def __init__(self, context: TermContext, partition: TopicIdPartition, name: str, tools: SweepTools) -> None:
        self._context, self._partition, self._name, self._tools = context, partition, name, tools
        self._every_s = min(max(tools.grace_s, LEAST_S), LOOK_EVERY_S)
        self._first_seen: dict[str, float] = {}
        self._ripe: dict[str, UnneededObject | Leftover] = {}
        self._due = self._next_turn()
        self.last: OrphansFound | None = None
        self.missing: tuple[MissingObject, ...] = ()
        """Missing objects of readable segments, as of the last look."""

    @property
    def ripe(self) -> tuple[str, ...]:
        """Return the object keys and upload ids that may be deleted now."""
        return tuple(self._ripe)

    @property
    def quarantine(self) -> Quarantine:
        return self._tools.quarantine

    def rest(self) -> None:
        """Forget all orphans: this broker does not lead, so another process may take care of them."""
        self._first_seen.clear()
        self._ripe.clear()
        self.last, self.missing = None, ()

    def look_soon(self) -> None:
        """Make the next look due at once."""
        self._due = self._context.clock.monotonic()

    def look_if_due(self, view: PartitionView) -> bool:
        """Look if a look is due. Return whether a look was completed. A tierstate error is reported, not raised, and
        the look is repeated after `AGAIN_S`.
        """
        if self._context.clock.monotonic() < self._due:
            return False
        try:
            self.look(view)
        except TierstateError as error:
            self._tell(str(error))
            self._due = self._context.clock.monotonic() + AGAIN_S
            return False
        return True

    def look(self, before: PartitionView) -> SweepFindings:
        """Look for orphans now, and report them to the listener. Raises the errors of `sweeper.look`, ViewBehind."""
        clock = self._context.clock
        fresh_view = partial(self._context.fresh_view, self._partition)
        findings = look(self._tools, self._name, before, fresh_view, self._context.time.clocks().for_deletion)
        now, condemned = clock.monotonic(), findings.condemned
        self._first_seen = {name: self._first_seen.get(name, now) for name in condemned}
        waiting = {name: self._tools.grace_s - (now - seen) for name, seen in self._first_seen.items()}
        self._ripe = {name: condemned[name] for name, left in waiting.items() if left <= 0}
        self.missing = findings.missing
        again = [now + AGAIN_S] if findings.missing else []  # the missing objects may be restored
        self._due = min([self._next_turn(), *again, *(now + left for left in waiting.values() if left > 0)])
        orphans = findings.orphans
        self.last = OrphansFound(
            self._partition,
            self._name,
            objects=len(orphans),
            bytes=sum(each.info.size for each in orphans),
            condemned=len(condemned),
            missing=len(findings.missing),
        )
        self._tools.listener(self.last)
        if findings.uploads_unseen:
            self._tell(f"unfinished uploads cannot be listed: {findings.uploads_unseen}")
        return findings

    def sweep(self, session: TermSession) -> Operation[int]:
        """Delete the orphans that two looks a grace apart condemned, each after one more check. Return their number.

        Raises Fenced if an orphan must stay, the term is no longer in force, or a person must resolve something first.
        """

        def trusted() -> PartitionView:
            view = last_look(session)
            session.time_of_deletion()
            session.confirm_leadership()
            return view

        done, ripe = 0, self._ripe
        trusted_view(session)
        for name, item in list(ripe.items()):
            yield "abort upload" if isinstance(item, Leftover) else "delete orphan"
            try:
                delete_orphan(self._tools, item, session.name, trusted)
            except Fenced:
                del ripe[name]
                raise
            del ripe[name]
            done += 1
        return done

    def _next_turn(self) -> float:
        clock = self._context.clock
        return clock.monotonic() + until_turn(self._partition, clock.now_ms(), self._every_s)

    def _tell(self, error: str) -> None:
        self._tools.listener(OperationFailed(self._partition, self._name, "look for orphans", error))
