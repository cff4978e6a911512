"""Runs the checks of promises on one store. Removes what the checks wrote, also after an interrupt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import cast

from ..state.errors import AccessDenied, InvalidRequest, ObjectNotFound, TierstateError, Unavailable
from .contract_evidence import Promise
from .object_store import ObjectStore
from .recording_store import RecordingStore

NOT_IMPLEMENTED = 501
ASKED_ONE_BY_ONE = 50


class Trial:
    """Checks one store. Writes only below ``prefix``, which nothing else uses. ``recorded`` counts the requests."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self.recorded = RecordingStore(store)
        self._prefix = prefix

    def reach(self) -> None:
        """Check once that the store can be written, listed and deleted from, before its promises are checked.

        Raises Unavailable, AccessDenied, InvalidRequest (no such bucket, a wrong endpoint).
        """
        key = f"{self._prefix}reach"
        try:
            self.recorded.put_if_absent(key, b"tierstate certify")
            next(self.recorded.list(self._prefix), None)
            self.recorded.delete(key)
        except TierstateError as error:
            if _shows_nothing(error) or (isinstance(error, InvalidRequest) and not _cannot(error)):
                raise

    def verdicts(self, promises: Sequence[Promise]) -> Iterator[tuple[Promise, TierstateError | None]]:
        """Yield each promise with None (kept) or its error (broken). Objects of a check are removed before the next.

        Raises Unavailable and AccessDenied: a store without an answer or access shows nothing about its promises.
        """
        for number, promise in enumerate(promises):
            failure: TierstateError | None = None
            try:
                promise.check(cast(ObjectStore, self.recorded), f"{self._prefix}{number:02d}/")
            except TierstateError as error:
                if _shows_nothing(error):
                    error.facts["promise"] = promise.name
                    raise
                failure = error
            finally:
                self.clear()
            yield promise, failure

    def clear(self) -> list[str]:
        """Remove everything that was written, check, and return the remaining keys and uploads.

        Never raises an error of the store. Keys that remain after the batch delete are deleted one by one.
        """
        with suppress(TierstateError):
            self.recorded.delete_many(sorted(self.recorded.written))
        for key in [*self._still_there(), *(self._listed() or ())]:
            with suppress(TierstateError):
                self.recorded.delete(key)
        uploads = self._abort_uploads()
        remaining = self._still_there() if self.recorded.written else []
        return sorted({*remaining, *(self._listed() or ()), *uploads})

    def _still_there(self) -> list[str]:
        """Return the written keys that still exist, and forget the others. Many keys are checked by a listing."""
        keys, listed = sorted(self.recorded.written), self._listed()
        if len(keys) > ASKED_ONE_BY_ONE and listed is not None:
            remaining = [key for key in keys if key in listed]
        else:
            remaining = [key for key in keys if self._may_be_there(key, listed)]
        self.recorded.written.intersection_update(remaining)
        return remaining

    def _may_be_there(self, key: str, listed: set[str] | None) -> bool:
        try:
            self.recorded.head(key)
        except (ObjectNotFound, InvalidRequest):  # an invalid key was never written
            return False
        except TierstateError:
            return listed is None or key in listed  # some stores deny access to missing keys: the listing decides
        return True

    def _listed(self) -> set[str] | None:
        with suppress(TierstateError):
            return {info.key for info in self.recorded.list(self._prefix) if info.key.startswith(self._prefix)}
        return None

    def _abort_uploads(self) -> list[str]:
        remaining: list[str] = []
        with suppress(TierstateError):
            for upload in list(self.recorded.unfinished_uploads(self._prefix)):
                if not upload.key.startswith(self._prefix):
                    continue  # of another client: a store may ignore the prefix, and this upload must stay
                try:
                    self.recorded.abort_upload(upload)
                except TierstateError:
                    remaining.append(f"{upload.key} (upload {upload.upload_id})")
        return remaining


def _shows_nothing(error: TierstateError) -> bool:
    """Return whether the error is an outage or a missing permission, which proves nothing about the promise."""
    return isinstance(error, Unavailable | AccessDenied) and not _cannot(error)


def _cannot(error: TierstateError) -> bool:
    """Return whether the store reports that it does not implement the request. Then the promise is broken."""
    return error.facts.get("status") == NOT_IMPLEMENTED
