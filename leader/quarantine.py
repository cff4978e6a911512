"""Copy objects to a quarantine before a sweep deletes them. Rules marked * are in `docs/tier-state.md`.

    <quarantine prefix><key>.<modified at, ms>.quarantined

The suffix hides the copies from every listing of segments: recover, verify and the sweep ignore them. To restore an
object, copy it to its original key with the store's own tools. tierstate never deletes objects in the quarantine: use a
lifecycle rule of the bucket for the prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from ..state.errors import InvalidRequest, ObjectExists, ObjectNotFound, StorageUnavailable
from ..state.object_keys import ObjectKind, object_key, require_own
from ..state.objects import ObjectInfo, checked_key
from ..state.offsets import ByteRange
from ..state.segment import CopyAttempt, RemoteSegment
from ..storage.object_store import ObjectReader, ObjectStore

SUFFIX = ".quarantined"


@dataclass(frozen=True, slots=True)
class Quarantine:
    """An empty ``prefix`` means no quarantine. ``throttle`` is called with the size of each piece, as for copies.

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

    def key_of(self, info: ObjectInfo) -> str:
        """Return an object's key in the quarantine: the same at each try, another one for a later object at its key."""
        return f"{self.prefix}{info.key}.{info.modified_at}{SUFFIX}"

    def keep(self, store: ObjectStore, key: str) -> None:
        """Copy an object to the quarantine; the caller deletes the original. Raises ObjectNotFound.

        `ObjectStore` has no copy operation, so this process reads and writes every byte once. Memory: a few parts of
        the object. Raises StorageUnavailable if the copy has another size.
        """
        info = store.head(key)
        target = self.key_of(info)
        try:
            store.put_stream(target, self._pieces(store, info))
        except ObjectExists:  # an earlier try wrote it, and died before the delete or got no answer
            pass
        copy = store.head(target)
        if copy.size != info.size:
            raise StorageUnavailable(
                "quarantined object has another size",
                object_key=key,
                quarantined=target,
                bytes=copy.size,
                was=info.size,
            )

    def keep_segment(self, store: ObjectStore, segment: CopyAttempt | RemoteSegment) -> None:
        """Copy the segment's existing objects. Raises CorruptData if its facts name objects of another segment*."""
        require_own(segment)
        for kind in ObjectKind:
            with suppress(ObjectNotFound):
                self.keep(store, object_key(segment.object_key, kind))

    def _pieces(self, store: ObjectReader, info: ObjectInfo) -> Iterator[bytes]:
        if not info.size:
            return
        for piece in store.stream_range(info.key, ByteRange(0, info.size)):
            self.throttle(len(piece))
            yield piece


NO_QUARANTINE = Quarantine()
