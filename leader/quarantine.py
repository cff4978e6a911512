"""Keep swept objects for a while, instead of deleting them, in a quarantine.

    <quarantine prefix><key>.<modified at, ms>.quarantined

The suffix hides them from every listing that looks for segments: recover, verify and the sweep ignore them. To take one
back, copy it to its key with the store's own tools. tierstate never deletes them: let a lifecycle rule of the bucket do
that for the prefix.
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
        """Return the same key at each try for one object, and another key for an object that lands at its key later."""
        return f"{self.prefix}{info.key}.{info.modified_at}{SUFFIX}"

    def keep(self, store: ObjectStore, key: str) -> None:
        """Copy an object to the quarantine; the caller deletes the original. Raises ObjectNotFound.

        The store's own copy operation is not used, because the protocol has none. This process reads and writes every
        byte once, with memory for a few parts of it.
        """
        info = store.head(key)
        target = self.key_of(info)
        try:
            store.put_stream(target, self._pieces(store, info))
        except ObjectExists:  # by a try that died before it deleted the original, or whose answer got lost
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
        """Copy those of its three objects that exist. Raises CorruptData when they are named for another segment*."""
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
