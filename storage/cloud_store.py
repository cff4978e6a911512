"""The part of a store that all clouds share: keys below a prefix, repeated requests, parts of large objects."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import partial
from itertools import chain
from typing import ClassVar, TypeVar

from ..runtime.clock import Clock, SystemClock
from ..runtime.id_source import IdSource, RandomIds
from ..runtime.listener import Listener, ignore
from ..state.errors import ObjectNotFound, StorageUnavailable
from ..state.object_keys import ObjectKind
from ..state.objects import ObjectInfo, UnfinishedUpload, checked_key
from ..state.offsets import ByteRange
from .answers import milliseconds
from .object_store import DEFAULT_PART_BYTES, Data, ObjectStore, StoreDate
from .options import StoreOptions
from .parts import Part, PartShares, UploadShare, parts_of
from .retry_policy import Limits, RetryPolicy, never

A = TypeVar("A")


class CloudStore(ObjectStore):
    """The objects of one bucket or container below one prefix. A ``/`` is put between the prefix (``a/b``) and a key.

    Every write carries a condition and marks its object with a new id (`new_mark`). After a lost answer, the mark of
    the existing object shows whether this write created it. The cloud's client sends each request once, and
    `retry_policy.py` repeats it.
    """

    scheme: ClassVar[str]
    one_request_bytes: ClassVar[int]
    """Most bytes that are put by one request."""
    parts: ClassVar[int] = 0
    """Most parts of one upload in memory. 0: as many as the options allow in flight."""

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        options: StoreOptions | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        listener: Listener = ignore,
    ) -> None:
        """Raises InvalidRequest for wrong options, and AccessDenied without credentials."""
        self.bucket = bucket
        self._prefix = f"{checked_key(prefix.strip('/'))}/" if prefix.strip("/") else ""
        self.options = options or StoreOptions()
        self.clock, self._ids, self._listener = clock or SystemClock(), ids or RandomIds(), listener
        limits = Limits(self.options.max_attempts, self.options.request_timeout, self.options.throttle_timeout)
        self._retries = RetryPolicy(limits, self.clock, self._ids, listener, self.description)
        self._shares = PartShares(self.parts or self.options.concurrency)
        self.date: StoreDate | None = None
        self._connect()

    @property
    def description(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self._prefix}".rstrip("/")

    def put_stream(self, key: str, pieces: Iterable[Data], *, part_bytes: int = DEFAULT_PART_BYTES) -> int:
        self.full(key)
        size = self._part_size(self.options.part_bytes if part_bytes == DEFAULT_PART_BYTES else part_bytes)
        with self._shares.upload() as share:
            parts = parts_of(pieces, size, share)
            first = next(parts)
            if first.last and len(first.data) <= self.one_request_bytes:
                self.put_if_absent(key, first.data)
                return len(first.data)
            return self._upload(key, chain((first,), parts), share)

    def get_range(self, key: str, range: ByteRange) -> bytes:
        return b"".join(self.stream_range(key, range))

    def list(self, prefix: str = "", start_after: str | None = None) -> Iterator[ObjectInfo]:
        token: str | None = None
        while True:
            infos, token = self.repeated_read("", partial(self._page, prefix, start_after, token))
            yield from (info for info in infos if start_after is None or info.key > start_after)
            if not token:
                return

    def delete(self, key: str) -> None:
        full = self.full(key)
        with suppress(ObjectNotFound):
            self.repeated_write(key, lambda: self._delete(full))

    def drop_cached(self, key: str) -> None:
        """Do nothing: this host caches no objects of the store."""

    def unfinished_uploads(self, prefix: str = "") -> Iterator[UnfinishedUpload]:
        """Yield nothing: unfinished uploads are invisible, and the cloud removes them after a week."""
        return iter(())

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        """Do nothing: `unfinished_uploads` yields none."""

    @abstractmethod
    def _connect(self) -> None:
        """Make the cloud's client."""

    @abstractmethod
    def once(self, key: str, request: Callable[[], A]) -> A:
        """Send a request once. Raises the errors that `object_store.py` lists; ``key`` is for them."""

    @abstractmethod
    def _upload(self, key: str, parts: Iterable[Part], share: UploadShare) -> int:
        """Create an object of several parts and return its size in bytes. `put_stream` describes the promises."""

    @abstractmethod
    def _page(self, prefix: str, after: str | None, token: str | None) -> tuple[Sequence[ObjectInfo], str | None]:
        """Return objects in key order from the page ``token``, and the token of the next page, None at the end.

        Keys up to ``after`` may be left out. Raises the cloud's own errors.
        """

    @abstractmethod
    def _delete(self, full: str) -> object: ...

    def _part_size(self, size: int) -> int:
        """Return the size in bytes of parts that the cloud accepts, for a wanted ``size``."""
        return size

    def full(self, key: str) -> str:
        """Return the key in the bucket. Raises InvalidRequest for keys that no store accepts."""
        return checked_key(self._prefix + checked_key(key))

    def class_of(self, key: str) -> str | None:
        """Return the storage class of a new object, None for the bucket's: small objects cost more in a cold class."""
        return self.options.storage_class if key.endswith(ObjectKind.LOG) else None

    def hear_date(self, header: str | None) -> None:
        """Keep the ``Date`` of an answer: the store's clock. A missing or unreadable date changes nothing."""
        with suppress(ValueError):
            moment = parsedate_to_datetime(header or "")
            aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
            self.date = StoreDate(milliseconds(aware), self.clock.monotonic())

    def new_mark(self) -> str:
        return self._ids.uuid().hex()

    def repeated_write(
        self, key: str, request: Callable[[], A], given_up: Callable[[], bool] = never, size: int = 0
    ) -> A:
        """Do the same as `once`, with the retry policy of writes. ``size`` is the number of bytes in the body."""
        return self._retries.write(key, lambda: self.once(key, request), given_up, size)

    def repeated_read(self, key: str, request: Callable[[], A]) -> A:
        return self._retries.read(key, lambda: self.once(key, request))

    def broken_body(self, key: str, position: int) -> StorageUnavailable:
        return StorageUnavailable("the body breaks off", key=key, store=self.description, position=position)
