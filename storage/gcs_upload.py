"""Sends one resumable upload to Google Cloud Storage: part by part, with bounded memory, only if the key is free.

If the answer to a part is lost, the part is sent again, and the store ignores bytes that it already has. The last part
carries the CRC-32C of the whole object. The store compares it before it creates the object, and `gcs.py` compares the
answer. A session without an object is invisible and costs nothing. Google removes it after a week.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import google_crc32c

from ..state.errors import StorageUnavailable
from .crc32c import crc32c_text
from .gcs_errors import FOREIGN, refused
from .parts import Part, UploadShare, as_bytes, send_all
from .retry_policy import ABORT_SECONDS

STEP = 256 * 1024
"""Google's rule: the size of every part except the last is a multiple of this."""
_PERSISTED = re.compile(r"bytes=0-(\d+)")


@dataclass(frozen=True, slots=True)
class Whole:
    """The size in bytes of all parts together, and their CRC-32C as Google writes it (base64, big-endian)."""

    size: int
    crc32c: str


class ResumableUpload:
    """The upload of one object. ``session_url`` is the result of `Blob.create_resumable_upload_session`.

    ``send`` sends and repeats a request and translates its errors. Its arguments are the request, a function that
    returns whether the upload was given up, and the body's size in bytes.
    """

    def __init__(
        self,
        transport: Any,
        session_url: str,
        timeout: tuple[float, float],
        send: Callable[[Callable[[], Any], Callable[[], bool], int], Any],
        store: str,
        share: UploadShare,
    ) -> None:
        self._transport, self._url, self._timeout, self._request = transport, session_url, timeout, send
        self._store, self._share = store, share
        self._position = 0
        self._crc = 0
        self.whole: Whole | None = None
        """Size and checksum of the object. None before the last part is sent: there can be no object yet."""
        self._failed = threading.Event()

    def send(self, parts: Iterable[Part]) -> dict[str, Any]:
        """Send every part and return Google's description of the object. Any failure, also of the iterator, cancels the
        session. One part is in flight while the next one is made, if ``parts`` has shares for both.
        """
        try:
            answers, _ = send_all(map(as_bytes, parts), self._send, self._share, self._failed, threads=1)
        except BaseException:  # also a closed generator or an interrupt
            with suppress(*FOREIGN):  # the first error counts
                self._transport.delete(self._url, timeout=ABORT_SECONDS / 2)  # for the connection and for the answer
            raise
        resource = answers[-1]
        assert resource is not None  # only the last part has one
        return resource

    def _send(self, number: int, part: Part) -> dict[str, Any] | None:
        if self._failed.is_set():
            raise StorageUnavailable("an earlier part was not stored", store=self._store, position=self._position)
        try:
            return self._sent(bytes(part.data), part.last)
        except BaseException:
            self._failed.set()
            raise

    def _sent(self, part: bytes, last: bool) -> dict[str, Any] | None:
        """Send one part, by further requests while the store has stored only its beginning."""
        self._crc = google_crc32c.extend(self._crc, part)
        start, stop = self._position, self._position + len(part)
        if last:
            self.whole = Whole(stop, crc32c_text(self._crc))
        while True:
            answer = self._request(
                lambda: self._put(part[self._position - start :], stop, last),
                self._failed.is_set,
                stop - self._position,
            )
            if answer.status_code != 308:
                if not last:
                    raise StorageUnavailable("the store ended the upload early", store=self._store, position=stop)
                resource: dict[str, Any] = answer.json()
                return resource
            match = _PERSISTED.fullmatch(answer.headers.get("Range", ""))
            persisted = int(match[1]) + 1 if match else 0
            if persisted == stop and not last:
                self._position = stop
                return None
            if not self._position < persisted < stop:
                raise StorageUnavailable("the store lost a part", store=self._store, position=stop, persisted=persisted)
            self._position = persisted

    def _put(self, rest: bytes, stop: int, last: bool) -> Any:
        headers = {"Content-Range": f"bytes {self._position}-{stop - 1}/{stop if last else '*'}"}
        if last and self.whole is not None:
            headers["x-goog-hash"] = f"crc32c={self.whole.crc32c}"
        answer = self._transport.put(
            self._url, data=rest, headers=headers, timeout=self._timeout, allow_redirects=False
        )
        if answer.status_code not in (200, 201, 308):
            raise refused(answer)
        return answer
