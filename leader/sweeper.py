"""Sweep objects that outlived their facts: those that landed after their segment was deleted, and unfinished uploads.

    LIST  →  a view captured after it  →  classify  →  the grace  →  all of it again  →  delete

The absence of a fact condemns nothing. `orphan_sweeps.py` looks, twice; the operation here deletes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..rules.missing import MissingObject, missing_objects
from ..rules.sweep import ArchivedDeletes, Leftover, UnneededObject, classify, classify_uploads
from ..runtime.listener import Listener
from ..runtime.operation import Operation
from ..state.errors import Fenced, ObjectNotFound, TierstateError
from ..state.object_keys import ObjectKeys, folder_of, keys_below
from ..state.object_name import not_own
from ..state.objects import ObjectInfo, UnfinishedUpload
from ..state.offsets import TimestampMs
from ..state.partition_view import PartitionView
from ..storage.object_store import ObjectReader, ObjectStore
from .expirer import last_look, trusted_view
from .quarantine import NO_QUARANTINE, Quarantine
from .term import TermSession


@dataclass(frozen=True, slots=True)
class SweepTools:
    """The tools that every sweep of this agent uses. ``grace_s``: between the two looks that condemn an object."""

    store: ObjectStore
    keys: ObjectKeys
    archived_deletes: ArchivedDeletes
    grace_s: float
    listener: Listener
    quarantine: Quarantine = NO_QUARANTINE


@dataclass(frozen=True, slots=True)
class SweepFindings:
    """One look at the objects of a partition. ``view``: captured after they were listed; ``listed`` are all of them.

    ``uploads_unseen``: why uploads that never ended could not be listed. ``missing``: objects of readable segments that
    are not there as they must be.
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
        """Return what is condemned by its lasting name: object key or upload id. A segment's manifest comes first."""
        objects: dict[str, UnneededObject | Leftover] = {
            each.info.key: each for each in self.findings if each.condemned
        }
        return objects | {each.upload.upload_id: each for each in self.leftovers if each.condemned}


def folders_of(keys: ObjectKeys, name: str, view: PartitionView) -> dict[str, ObjectKeys]:
    """Return the folders of a partition's objects with the keys that parse the names there: the current folder, and
    those below every earlier prefix and salt that its facts remember.
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
    """Look without writing. Objects first, facts second*: an object is written after the fact that names it, so the
    view has the facts of all objects listed here that an attempt of any agent wrote. ``before``: shows where to look.

    Raises Unavailable kinds, AccessDenied.
    """
    folders = folders_of(tools.keys, name, before)
    objects = {folder: _listed(tools.store, folder, folders) for folder in folders}
    uploads: dict[str, list[UnfinishedUpload]] = {}
    unseen = None
    try:
        uploads = {folder: list(tools.store.unfinished_uploads(folder)) for folder in folders}
    except TierstateError as error:  # the rights may not cover it; objects are looked at all the same
        unseen = str(error)
    view = fresh_view()
    older_than = TimestampMs(round(now_ms - tools.grace_s * 1000))
    findings: list[UnneededObject] = []
    leftovers: list[Leftover] = []
    for folder, keys in folders.items():
        findings += classify(objects[folder], keys, view, tools.archived_deletes)
        leftovers += classify_uploads(uploads.get(folder, ()), keys, view, tools.archived_deletes, older_than)
    everything = tuple(each for some in objects.values() for each in some)
    missing = missing_objects(before, view, everything, folders)
    return SweepFindings(view, everything, tuple(findings), tuple(leftovers), unseen, missing)


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
    """Delete the orphan, or move it to the quarantine, right after judging it again. ``trusted`` returns a view as of
    now that may be acted on. Without ``condemned_only`` a person named it: it is enough that no fact does.

    Raises Fenced when the object must stay after all, and what ``trusted`` raises.
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


def sweep_orphans(
    session: TermSession, tools: SweepTools, ripe: dict[str, UnneededObject | Leftover]
) -> Operation[int]:
    """Delete what two looks a grace apart condemned, each after one more proof. Return how many were deleted.

    Items that are done, or must stay after all, are removed from ``ripe``. Raises Fenced when the term no longer rules
    or a person must resolve something first.
    """

    def trusted() -> PartitionView:
        view = last_look(session)
        session.time_of_deletion()
        session.confirm_leadership()
        return view

    done = 0
    trusted_view(session)
    for name, item in list(ripe.items()):
        yield "abort upload" if isinstance(item, Leftover) else "delete orphan"
        try:
            delete_orphan(tools, item, session.name, trusted)
        except Fenced:
            del ripe[name]
            raise
        del ripe[name]
        done += 1
    return done
