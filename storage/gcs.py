"""Google Cloud Storage, accessed with google-cloud-storage (the extra ``gcs``) and application default credentials.

Every write is conditional (``ifGenerationMatch``: 0 for a new object). If a body breaks off, the rest is requested.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import quote

import google.auth
from google.api_core.exceptions import GoogleAPIError
from google.auth.credentials import AnonymousCredentials, Signing
from google.auth.exceptions import DefaultCredentialsError
from google.auth.transport.requests import AuthorizedSession, Request
from google.cloud import storage
from requests.adapters import HTTPAdapter

from ..state.errors import (
    AccessDenied,
    InvalidRequest,
    ObjectExists,
    ObjectNotFound,
    StorageUnavailable,
    Throttled,
    TierstateError,
)
from ..state.objects import ObjectInfo
from ..state.offsets import ByteRange
from .answers import body_range, milliseconds
from .cloud_store import CloudStore
from .crc32c import crc32c_from
from .gcs_errors import BROKEN_BODY, FOREIGN, NO_OBJECT, refused, translated
from .gcs_upload import STEP, ResumableUpload, Whole
from .object_store import MIB, Data, RangeNotSatisfiable, beyond_end, over_limit
from .options import StoreOptions
from .parts import Part, UploadShare
from .retry_policy import NotRepeatable, never

UPLOAD_ID = "tierstate-upload"
"""Name of the metadata entry that shows which upload created an object."""
_BINARY = "application/octet-stream"
_BATCH = 1000
_DELETES = 8
"""Delete requests in flight at a time."""
_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
_CONNECTIONS = 32
_anonymous: Any = AnonymousCredentials  # Google's classes have types, their constructors have none
_authorized: Any = AuthorizedSession


class GcsStore(CloudStore):
    scheme = "gs"
    one_request_bytes = 8 * MIB  # Google's client sends more by its own resumable upload, which cannot continue a part
    parts = 2  # one in flight, because parts are sent one by one, and the next part

    def _connect(self) -> None:
        self._timeout = (self.options.connect_timeout, self.options.read_timeout)
        self._once: dict[str, Any] = {"timeout": self._timeout, "retry": None}
        self._session: Any = authorized_session(self.options, self.description)
        self._session.hooks["response"].append(lambda answer, **_: self.hear_date(answer.headers.get("Date")))
        try:
            # `_open` reads bodies by this session: so both use one connection pool and the same credentials.
            more = {"client_options": {"api_endpoint": self.options.endpoint}} if self.options.endpoint else {}
            self._client: Any = storage.Client(
                project=None, credentials=self._session.credentials, _http=self._session, **more
            )
            self._bucket: Any = self._client.bucket(self.bucket)
        except (ValueError, GoogleAPIError) as error:
            raise InvalidRequest("the GCS client cannot be built", store=self.description, reason=error) from error

    def put_if_absent(self, key: str, data: Data) -> None:
        body = bytes(data)
        if len(body) > self.one_request_bytes:
            self.put_stream(key, [body])
            return
        blob = self._signed(key)
        try:
            self._write(key, lambda: self._put(blob, body, generation=0), size=len(body))
        except ObjectExists:
            if not self._is_ours(blob, None):
                raise

    def _part_size(self, size: int) -> int:
        return -(-size // STEP) * STEP

    def _upload(self, key: str, parts: Iterable[Part], share: UploadShare) -> int:
        blob = self._signed(key)
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
        blob, existing = self._signed(key), self._bucket.blob(self.full(key))
        self.repeated_read(key, lambda: existing.reload(**self._once))  # before the read: later changes are refused
        if self.get(key) != previous:
            return False
        try:
            self._write(key, lambda: self._put(blob, bytes(data), generation=existing.generation))
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

    def stream_range(self, key: str, range: ByteRange, piece_bytes: int = MIB) -> Iterator[bytes]:
        position, stop, attempts = range.start, range.stop, self._retries.reading(key)
        while position < stop:
            try:
                answer = self._open(key, ByteRange(position, stop))
            except (Throttled, StorageUnavailable) as error:
                attempts.failed(error)
                continue
            with closing(answer):
                content_range = answer.headers.get("Content-Range")
                stop, _ = body_range(content_range, ByteRange(position, stop), key, self.description)
                while position < stop and (piece := _next_piece(answer, min(piece_bytes, stop - position))):
                    position += len(piece)
                    attempts.progressed()
                    yield piece
            if position < stop:
                attempts.failed(self.broken_body(key, position))

    def head(self, key: str) -> ObjectInfo:
        blob = self._bucket.blob(self.full(key))
        self.repeated_read(key, lambda: blob.reload(**self._once))
        return ObjectInfo(key, blob.size, milliseconds(blob.updated), crc32c_from(blob.crc32c))

    def delete_many(self, keys: Iterable[str]) -> None:
        """Send one request per key. Google's batch would be 100 such requests in one body, each with its own result."""
        remaining = iter(keys)
        with ThreadPoolExecutor(_DELETES, thread_name_prefix="tierstate-delete") as pool:
            while batch := tuple(itertools.islice(remaining, _BATCH)):
                for deletion in [pool.submit(self.delete, key) for key in batch]:
                    deletion.result()

    def signed_url(self, key: str, seconds: float) -> str | None:
        """Sign with the service account's key. Without it, request a signature (`iam.serviceAccounts.signBlob`)."""
        blob, lifetime = self._bucket.blob(self.full(key)), timedelta(seconds=int(seconds))
        endpoint = {} if self.options.endpoint is None else {"api_access_endpoint": self.options.endpoint}

        def sign() -> str | None:
            account = signing_account(self._session)
            more = {"version": "v4", "expiration": lifetime, **endpoint, **(account or {})}
            return None if account is None else str(blob.generate_signed_url(**more))

        url: str | None = self.once(key, sign)
        return url

    def close(self) -> None:
        self._client.close()
        self._session.close()

    def _delete(self, full: str) -> object:
        return self._bucket.blob(full).delete(**self._once)

    def _signed(self, key: str) -> Any:
        blob = self._bucket.blob(self.full(key))
        blob.metadata = {UPLOAD_ID: self.new_mark()}
        if (storage_class := self.class_of(key)) is not None:
            blob.storage_class = storage_class
        return blob

    def _put(self, blob: Any, body: bytes, *, generation: int) -> None:
        # Google compares this checksum and refuses data that was damaged in transit.
        blob.upload_from_string(
            body, content_type=_BINARY, if_generation_match=generation, checksum="crc32c", **self._once
        )

    def _page(
        self, prefix: str, after: str | None, token: str | None, most: int | None = None
    ) -> tuple[Sequence[ObjectInfo], str | None]:
        blobs = self._client.list_blobs(
            self._bucket,
            prefix=self._prefix + prefix or None,
            start_offset=None if after is None else self._prefix + after,  # inclusive
            page_token=token,
            max_results=most,
            fields="items(name,size,updated),nextPageToken",
            **self._once,
        )
        infos = [
            ObjectInfo(blob.name.removeprefix(self._prefix), blob.size, milliseconds(blob.updated))
            for blob in next(blobs.pages, ())
        ]
        return infos, blobs.next_page_token

    def _is_ours(self, blob: Any, whole: Whole | None) -> bool:
        """Return whether this upload created the existing object, with exactly the size and checksum of ``whole``."""
        existing = self._bucket.blob(blob.name)
        with suppress(TierstateError):
            self.repeated_write("", lambda: existing.reload(**self._once))
            if (existing.metadata or {}).get(UPLOAD_ID) == blob.metadata[UPLOAD_ID]:
                return whole is None or (existing.size, existing.crc32c) == (whole.size, whole.crc32c)
        return False

    def _agrees(self, blob: Any, key: str, resource: dict[str, Any], whole: Whole | None) -> None:
        """Remove an object that differs from ``whole``, and raise StorageUnavailable. Google creates none."""
        actual = Whole(int(resource["size"]), resource["crc32c"])
        if actual != whole:
            generation = int(resource["generation"])
            with suppress(TierstateError):
                self.repeated_write(key, lambda: blob.delete(if_generation_match=generation, **self._once))
            raise StorageUnavailable(
                "the store made another object than was sent", key=key, store=self.description, sent=whole, made=actual
            )

    def _open(self, key: str, range: ByteRange | None) -> Any:
        """Return the answer to one GET, whose body is not read yet. The caller closes the answer."""
        url = f"{self._client.api_endpoint}/download/storage/v1/b/{self.bucket}/o/{quote(self.full(key), safe='')}"
        headers = {"Accept-Encoding": "identity"}
        if range is not None:
            headers["Range"] = f"bytes={range.start}-{range.stop - 1}"

        def request() -> Any:
            answer = self._session.get(
                url, params={"alt": "media"}, headers=headers, timeout=self._timeout, stream=True
            )
            if answer.status_code not in (200, 206):
                with closing(answer):
                    raise refused(answer)
            return answer

        try:
            return self.once(key, request)
        except RangeNotSatisfiable as error:
            raise error if range is None else beyond_end(key, range, None) from error

    def _write(self, key: str, act: Callable[[], Any], given_up: Callable[[], bool] = never, size: int = 0) -> Any:
        """Do the same as `repeated_write`, but raise NotRepeatable for a 404: the write's upload session ended."""

        def once() -> Any:
            try:
                return self.once(key, act)
            except ObjectNotFound as failure:
                ended = NotRepeatable("the upload is gone: its session ended", key=key, store=self.description)
                raise ended from failure.__cause__

        return self._retries.write(key, once, given_up, size)

    def once(self, key: str, request: Callable[[], Any]) -> Any:
        try:
            return request()
        except FOREIGN as error:
            failure = translated(error, key, self.description)
            if isinstance(failure, ObjectNotFound) and NO_OBJECT not in str(error) and not self._has_bucket():
                failure = InvalidRequest("the bucket does not exist", store=self.description)
            raise failure from error

    def _has_bucket(self) -> bool:
        """Return whether the bucket exists. If the store refuses the listing or fails, assume that it exists."""
        try:
            self._page("", None, None, most=1)
        except FOREIGN as error:
            return not isinstance(translated(error, "", self.description), ObjectNotFound | InvalidRequest)
        return True


def _next_piece(answer: Any, size: int) -> bytes:
    """Return the next ``size`` bytes of the body. Returns fewer bytes, or none, if the body broke off."""
    with suppress(*BROKEN_BODY):
        piece: bytes = answer.raw.read(size, decode_content=False)
        return piece
    return b""


def authorized_session(options: StoreOptions, store: str) -> Any:
    """Return an HTTP session. Raises AccessDenied if Google's search finds no credentials and no endpoint is set."""
    if options.endpoint is not None and options.endpoint.startswith("http:"):
        credentials: Any = _anonymous()  # an emulator; a token is never sent unencrypted
    else:
        try:
            credentials, _ = google.auth.default(scopes=[_SCOPE])
        except DefaultCredentialsError as error:
            if options.endpoint is None:
                raise AccessDenied("no credentials for the store", store=store, reason=error) from error
            credentials = _anonymous()
    session = _authorized(credentials)
    session.mount("https://", HTTPAdapter(pool_connections=_CONNECTIONS, pool_maxsize=_CONNECTIONS))
    if options.proxy is not None:
        session.proxies = {"http": options.proxy, "https": options.proxy}
    session.mount("http://", HTTPAdapter(pool_connections=_CONNECTIONS, pool_maxsize=_CONNECTIONS))
    return session


def signing_account(session: Any) -> dict[str, Any] | None:
    """Return arguments for `Blob.generate_signed_url`. Returns None if the client's credentials cannot sign.

    Raises GoogleAuthError if there is no token for the request to Google.
    """
    credentials = session.credentials
    if isinstance(credentials, Signing):
        return {"credentials": credentials}
    email = getattr(credentials, "service_account_email", None)
    if email is None:
        return None
    if not credentials.valid:  # a machine in Google's cloud knows its account only after a refresh
        credentials.refresh(Request())
    return {"service_account_email": credentials.service_account_email, "access_token": credentials.token}
