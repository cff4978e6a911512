"""Google Cloud Storage, accessed with google-cloud-storage (the extra ``gcs``) and application default credentials.

Every write is conditional (``ifGenerationMatch``: 0 for a new object) and puts its own id into the object's metadata.
After a lost answer, the id of the existing object shows whether this write created it. Google's client sends each
request once, and `retry_policy.py` repeats it, as for every store. If a body breaks off, its rest is requested here.
"""

from __future__ import annotations

import builtins
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import quote

from google.api_core.exceptions import GoogleAPIError

from ..runtime.clock import Clock, SystemClock
from ..runtime.id_source import IdSource, RandomIds
from ..runtime.listener import Listener, ignore
from ..state.errors import (
    CorruptData,
    InvalidRequest,
    ObjectExists,
    ObjectNotFound,
    StorageUnavailable,
    Throttled,
    TierstateError,
)
from ..state.objects import ObjectInfo, UnfinishedUpload, checked_key
from ..state.offsets import ByteRange, TimestampMs
from .crc32c import crc32c_from
from .gcs_errors import BROKEN_BODY, FOREIGN, NO_OBJECT, refused, translated
from .gcs_options import authorized_session, gcs_client, signing_account
from .gcs_upload import STEP, ResumableUpload, Whole
from .object_store import DEFAULT_PART_BYTES, MIB, Data, RangeNotSatisfiable, beyond_end, over_limit
from .options import StoreOptions
from .parts import Part, PartShares, UploadShare, drained, parts_of
from .retry_policy import NotRepeatable, RetryPolicy, never
from .store_date import DateHeard, StoreDate

UPLOAD_ID = "tierstate-upload"
"""Name of the metadata entry that shows which upload created an object."""
_BINARY = "application/octet-stream"
_ONE_REQUEST_BYTES = 8 * MIB
"""Google's client sends larger data by its own resumable upload, which cannot continue a partly stored part."""
_PARTS = 2
"""Most parts of one upload in memory: one in flight, because parts are sent one by one, and the next part."""
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")
_BATCH = 1000
_DELETES = 8
"""Delete requests in flight at a time."""


class GcsStore:
    """The objects of one bucket below one prefix. The store puts a ``/`` between the prefix (``a/b``) and a key."""

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        options: StoreOptions | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        listener: Listener = ignore,
    ) -> None:
        if not bucket:
            raise InvalidRequest("a GCS store has a bucket", example="gs://bucket/prefix")
        self._name = bucket
        self._prefix = f"{checked_key(prefix.strip('/'))}/" if prefix.strip("/") else ""
        self._options = options or StoreOptions()
        self._ids = ids or RandomIds()
        self._retries = RetryPolicy(self._options.limits, clock or SystemClock(), self._ids, listener, self.description)
        self._shares = PartShares(_PARTS)
        self._timeout = (self._options.connect_timeout, self._options.read_timeout)
        self._once: dict[str, Any] = {"timeout": self._timeout, "retry": None}
        self._session: Any = authorized_session(self._options, self.description)
        self._dates = DateHeard(clock or SystemClock())
        self._session.hooks["response"].append(lambda answer, **_: self._dates.hear(answer.headers.get("Date")))
        try:
            self._client: Any = gcs_client(self._options, self._session)
            self._bucket: Any = self._client.bucket(bucket)
        except (ValueError, GoogleAPIError) as error:
            raise InvalidRequest("the GCS client cannot be built", store=self.description, reason=error) from error

    @property
    def description(self) -> str:
        return f"gs://{self._name}/{self._prefix}".rstrip("/")

    @property
    def date(self) -> StoreDate | None:
        return self._dates.newest

    def put_if_absent(self, key: str, data: Data) -> None:
        body = bytes(data)
        if len(body) > _ONE_REQUEST_BYTES:
            self.put_stream(key, [body])
            return
        blob = self._signed(key)
        try:
            self._write(key, lambda: self._put(blob, body, generation=0), size=len(body))
        except ObjectExists:
            if not self._is_ours(blob, None):
                raise

    def put_stream(self, key: str, pieces: Iterable[Data], *, part_bytes: int = DEFAULT_PART_BYTES) -> int:
        blob = self._signed(key)
        size = self._options.part_bytes if part_bytes == DEFAULT_PART_BYTES else part_bytes
        with self._shares.upload() as share:
            parts = parts_of(pieces, -(-size // STEP) * STEP, share)
            begin = [next(parts)]
            if begin[0].last and len(begin[0].data) <= _ONE_REQUEST_BYTES:
                self.put_if_absent(key, begin[0].data)
                return len(begin[0].data)
            return self._resumed(key, blob, drained(begin, parts), share)

    def _resumed(self, key: str, blob: Any, parts: Iterable[Part], share: UploadShare) -> int:
        session = {"content_type": _BINARY, "checksum": None, "if_generation_match": 0, **self._once}
        url = self._write(key, lambda: blob.create_resumable_upload_session(**session))
        send = partial(self._write, key)
        upload = ResumableUpload(self._session, url, self._timeout, send, self.description, share)
        try:
            resource = upload.send(parts)
        except (ObjectExists, StorageUnavailable):
            # After a lost answer, the retry finds this upload's object (412) or a session that has ended (404).
            if upload.whole is None or not self._is_ours(blob, upload.whole):
                raise
        else:
            self._agrees(blob, key, resource, upload.whole)
        assert upload.whole is not None
        return upload.whole.size

    def replace_if_same(self, key: str, data: Data, previous: bytes) -> bool:
        blob, body = self._signed(key), bytes(data)
        answer = self._retries.read(key, lambda: self._open(key, None))
        with closing(answer):
            generation, size = int(answer.headers["x-goog-generation"]), int(answer.headers["Content-Length"])
            if size != len(previous):
                return False
            content = _next_piece(answer, size) if size else b""
        if len(content) != size:
            raise self._broken(key, 0)
        if content != previous:
            return False
        try:
            self._write(key, lambda: self._put(blob, body, generation=generation))
        except ObjectExists:  # Google's error for an outdated generation
            return self._is_ours(blob, None)
        return True

    def get(self, key: str, limit: int | None = None) -> bytes:
        answer = self._retries.read(key, lambda: self._open(key, None))
        with closing(answer):
            size = int(answer.headers["Content-Length"])
            if limit is not None and size > limit:
                raise over_limit(key, size, limit)
            body = _next_piece(answer, size) if size else b""
        return body if len(body) == size else self.get_range(key, ByteRange(0, size))

    def get_range(self, key: str, range: ByteRange) -> bytes:
        return b"".join(self.stream_range(key, range))

    def stream_range(self, key: str, range: ByteRange, piece_bytes: int = MIB) -> Iterator[bytes]:
        position, stop, attempts = range.start, range.stop, self._retries.reading(key)
        while position < stop:
            try:
                answer = self._open(key, ByteRange(position, stop))
            except (Throttled, StorageUnavailable) as error:
                attempts.failed(error)
                continue
            with closing(answer):
                stop = self._checked_stop(key, ByteRange(position, stop), answer)
                while position < stop and (piece := _next_piece(answer, min(piece_bytes, stop - position))):
                    position += len(piece)
                    attempts.progressed()
                    yield piece
            if position < stop:
                attempts.failed(self._broken(key, position))

    def head(self, key: str) -> ObjectInfo:
        blob = self._bucket.blob(self._full(key))
        self._read(key, lambda: blob.reload(**self._once))
        return ObjectInfo(key, blob.size, _milliseconds(blob.updated), crc32c_from(blob.crc32c))

    def list(self, prefix: str = "", start_after: str | None = None) -> Iterator[ObjectInfo]:
        after = self._prefix + start_after if start_after is not None else None
        token: str | None = None
        while True:
            page, token = self._read("", partial(self._page, self._prefix + prefix, after, token))
            for blob in page:
                if blob.name != after:  # Google's offset is inclusive
                    yield ObjectInfo(blob.name.removeprefix(self._prefix), blob.size, _milliseconds(blob.updated))
            if not token:
                return

    def drop_cached(self, key: str) -> None:
        """Do nothing: this host caches no objects of the store."""

    def delete(self, key: str) -> None:
        blob = self._bucket.blob(self._full(key))
        with suppress(ObjectNotFound):
            self._delete(key, lambda: blob.delete(**self._once))

    def delete_many(self, keys: Iterable[str]) -> None:
        """Send one request per key. Google's batch would be 100 such requests in one body, each with its own result."""
        remaining = iter(keys)
        with ThreadPoolExecutor(_DELETES, thread_name_prefix="tierstate-delete") as pool:
            while batch := tuple(itertools.islice(remaining, _BATCH)):
                for deletion in [pool.submit(self.delete, key) for key in batch]:
                    deletion.result()

    def unfinished_uploads(self, prefix: str = "") -> Iterator[UnfinishedUpload]:
        """Yield nothing: unfinished upload sessions are invisible, cost nothing, and expire after a week."""
        return iter(())

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        """Do nothing: `unfinished_uploads` yields none."""

    def signed_url(self, key: str, seconds: float) -> str | None:
        """Sign with the service account's key. Without it, request a signature (`iam.serviceAccounts.signBlob`)."""
        blob, lifetime = self._bucket.blob(self._full(key)), timedelta(seconds=int(seconds))
        endpoint = {} if self._options.endpoint is None else {"api_access_endpoint": self._options.endpoint}

        def sign() -> str | None:
            account = signing_account(self._session)
            if account is None:
                return None
            return str(blob.generate_signed_url(version="v4", expiration=lifetime, **endpoint, **account))

        url: str | None = self._typed(key, sign)
        return url

    def close(self) -> None:
        self._client.close()
        self._session.close()

    def _full(self, key: str) -> str:
        return checked_key(self._prefix + checked_key(key))

    def _signed(self, key: str) -> Any:
        blob = self._bucket.blob(self._full(key))
        blob.metadata = {UPLOAD_ID: self._ids.uuid().hex()}
        return blob

    def _put(self, blob: Any, body: bytes, *, generation: int) -> None:
        # Google compares this checksum and refuses data that was damaged in transit.
        blob.upload_from_string(
            body, content_type=_BINARY, if_generation_match=generation, checksum="crc32c", **self._once
        )

    def _page(
        self, prefix: str, start: str | None, token: str | None, most: int | None = None
    ) -> tuple[builtins.list[Any], str | None]:
        blobs = self._client.list_blobs(
            self._bucket,
            prefix=prefix or None,
            start_offset=start,
            page_token=token,
            max_results=most,
            fields="items(name,size,updated),nextPageToken",
            **self._once,
        )
        return [*next(blobs.pages, ())], blobs.next_page_token

    def _is_ours(self, blob: Any, whole: Whole | None) -> bool:
        """Return whether this upload created the existing object, with exactly the size and checksum of ``whole``."""
        existing = self._bucket.blob(blob.name)
        with suppress(TierstateError):
            self._retries.write("", lambda: self._reloaded(existing))
            if (existing.metadata or {}).get(UPLOAD_ID) == blob.metadata[UPLOAD_ID]:
                return whole is None or (existing.size, existing.crc32c) == (whole.size, whole.crc32c)
        return False

    def _reloaded(self, blob: Any) -> None:
        try:
            blob.reload(**self._once)
        except FOREIGN as error:
            raise translated(error, "", self.description) from error

    def _agrees(self, blob: Any, key: str, resource: dict[str, Any], whole: Whole | None) -> None:
        """Remove an object that differs from ``whole``, and raise StorageUnavailable. Google creates none."""
        actual = Whole(int(resource["size"]), resource["crc32c"])
        if actual != whole:
            generation = int(resource["generation"])
            with suppress(TierstateError):
                self._delete(key, lambda: blob.delete(if_generation_match=generation, **self._once))
            raise StorageUnavailable(
                "the store made another object than was sent", key=key, store=self.description, sent=whole, made=actual
            )

    def _open(self, key: str, range: ByteRange | None) -> Any:
        """Return the answer to one GET, whose body is not read yet. The caller closes the answer."""
        url = f"{self._client.api_endpoint}/download/storage/v1/b/{self._name}/o/{quote(self._full(key), safe='')}"
        headers = {"Accept-Encoding": "identity"}
        if range is not None:
            headers["Range"] = f"bytes={range.start}-{range.stop - 1}"
        try:
            answer = self._session.get(
                url, params={"alt": "media"}, headers=headers, timeout=self._timeout, stream=True
            )
            if answer.status_code not in (200, 206):
                with closing(answer):
                    raise refused(answer)
        except FOREIGN as error:
            failure = self._read_failed(error, key)
            if range is not None and isinstance(failure, RangeNotSatisfiable):
                raise beyond_end(key, range, None) from error
            raise failure from error
        return answer

    def _checked_stop(self, key: str, range: ByteRange, answer: Any) -> int:
        """Return the stop position of the body in the object. Raises CorruptData if its range is not ``range``."""
        match = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range", ""))
        expected = (range.start, min(range.stop, int(match[3])) - 1) if match else None
        if not match or (int(match[1]), int(match[2])) != expected:
            raise CorruptData(
                "the store answers another range than asked",
                key=key,
                store=self.description,
                asked=f"{range.start}-{range.stop - 1}",
                answered=answer.headers.get("Content-Range", "the whole object"),
            )
        return int(match[2]) + 1

    def _broken(self, key: str, position: int) -> StorageUnavailable:
        return StorageUnavailable("the body breaks off", key=key, store=self.description, position=position)

    def _read(self, key: str, act: Callable[[], Any]) -> Any:
        """Return the result of ``act``. Repeat it by the retry policy of reads, and translate its errors."""
        return self._retries.read(key, lambda: self._typed(key, act))

    def _delete(self, key: str, act: Callable[[], Any]) -> Any:
        """Do the same as `_read`, with the retry policy of writes."""
        return self._retries.write(key, lambda: self._typed(key, act))

    def _write(self, key: str, act: Callable[[], Any], given_up: Callable[[], bool] = never, size: int = 0) -> Any:
        """Do the same as `_delete`. A 404 of a write means that its upload session ended: it raises NotRepeatable."""

        def once() -> Any:
            try:
                return self._typed(key, act)
            except ObjectNotFound as failure:
                ended = NotRepeatable("the upload is gone: its session ended", key=key, store=self.description)
                raise ended from failure.__cause__

        return self._retries.write(key, once, given_up, size)

    def _typed(self, key: str, act: Callable[[], Any]) -> Any:
        try:
            return act()
        except FOREIGN as error:
            raise self._read_failed(error, key) from error

    def _read_failed(self, error: BaseException, key: str) -> TierstateError:
        failure = translated(error, key, self.description)
        if isinstance(failure, ObjectNotFound) and NO_OBJECT not in str(error) and not self._has_bucket():
            return InvalidRequest("the bucket does not exist", store=self.description)
        return failure

    def _has_bucket(self) -> bool:
        """Return whether the bucket exists. If the store refuses the listing or fails, assume that it exists."""
        try:
            self._page(self._prefix, None, None, most=1)
        except FOREIGN as error:
            return not isinstance(translated(error, "", self.description), ObjectNotFound | InvalidRequest)
        return True


def _next_piece(answer: Any, size: int) -> bytes:
    """Return the next ``size`` bytes of the body. Returns fewer bytes, or none, if the body broke off."""
    with suppress(*BROKEN_BODY):
        piece: bytes = answer.raw.read(size, decode_content=False)
        return piece
    return b""


def _milliseconds(moment: Any) -> TimestampMs:
    return TimestampMs(round(moment.timestamp() * 1000))
