"""Where swept objects go when people want to keep them for a while, instead of being deleted.

    <quarantine prefix><key>.<modified at, ms>.quarantined

The suffix keeps them from every listing that looks for segments: recover, verify and the sweep know them no more. To
take one back, copy it to its key by the store's own tools. tierstate never deletes them: a lifecycle rule of the bucket
on the prefix does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from ..state.errors import InvalidRequest, ObjectExists, ObjectNotFound, StorageUnavailable
from ..state.object_keys import ObjectKind, object_key
from ..state.object_name import require_own
from ..state.objects import ObjectInfo, checked_key
from ..state.offsets import ByteRange
from ..state.segment import CopyAttempt, RemoteSegment
from ..storage.object_store import ObjectReader, ObjectStore

SUFFIX = ".quarantined"


@dataclass(frozen=True, slots=True)
class Quarantine:
    """``prefix`` empty: there is none. ``throttle`` is told of every byte, as a copy's is.

    Raises InvalidRequest for a prefix that no key may have.
    """

    prefix: str = ""
    throttle: Callable[[int], object] = lambda size: None

    def __post_init__(self) -> None:
        checked_key(f"{self.prefix}x")
        if self.prefix.startswith("_tierstate"):
            raise InvalidRequest(
                "sweep.quarantine_prefix is reserved: archive and checkpoints", quarantine_prefix=repr(self.prefix)
            )

    def __bool__(self) -> bool:
        return bool(self.prefix)

    def key_of(self, found: ObjectInfo) -> str:
        """The same object goes to the same key, however often it is tried; what lands later at its key, to another."""
        return f"{self.prefix}{found.key}.{found.modified_at}{SUFFIX}"

    def keep(self, store: ObjectStore, key: str) -> None:
        """Copy an object aside; the original stays, for the caller to delete. Raises ObjectNotFound.

        No store's own copy is used, for the seam has none: every byte is read and written once by this process, with
        memory for a few parts of it.
        """
        found = store.head(key)
        target = self.key_of(found)
        try:
            store.put_stream(target, self._pieces(store, found))
        except ObjectExists:  # one that died before it deleted the original, or whose answer got lost
            pass
        kept = store.head(target)
        if kept.size != found.size:
            raise StorageUnavailable(
                "quarantined object has another size",
                object_key=key,
                quarantined=target,
                bytes=kept.size,
                was=found.size,
            )

    def keep_segment(self, store: ObjectStore, segment: CopyAttempt | RemoteSegment) -> None:
        """What there is of its three objects. Raises CorruptData when those named are another segment's*."""
        require_own(segment)
        for kind in ObjectKind:
            with suppress(ObjectNotFound):
                self.keep(store, object_key(segment.object_key, kind))

    def _pieces(self, store: ObjectReader, found: ObjectInfo) -> Iterator[bytes]:
        if not found.size:
            return
        for piece in store.stream_range(found.key, ByteRange(0, found.size)):
            self.throttle(len(piece))
            yield piece


NO_QUARANTINE = Quarantine()
