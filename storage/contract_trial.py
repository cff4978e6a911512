"""Runs the checks of promises on one store, and removes what they wrote, also when it is interrupted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from ..state.errors import AccessDenied, InvalidRequest, ObjectNotFound, TierstateError, Unavailable
from .contract_evidence import Promise
from .object_store import ObjectStore
from .recording_store import RecordingStore

NOT_IMPLEMENTED = 501
ASKED_ONE_BY_ONE = 50


class Trial:
    """Writes only below ``prefix``, which nothing else uses. ``recorded`` counts the requests to the store."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self.recorded = RecordingStore(store)
        self._prefix = prefix

    def reach(self) -> None:
        """Try once whether the store can be written to at all, before its promises are judged.

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
        """Yield each promise with None (kept) or its error (broken). Every check's objects are removed before the next.

        Raises Unavailable and AccessDenied: a store that is silent or refuses us shows nothing about its promises.
        """
        for number, promise in enumerate(promises):
            failure: TierstateError | None = None
            try:
                promise.check(self.recorded, f"{self._prefix}{number:02d}/")
            except TierstateError as error:
                if _shows_nothing(error):
                    error.facts["promise"] = promise.name
                    raise
                failure = error
            finally:
                self.clear()
            yield promise, failure

    def clear(self) -> list[str]:
        """Remove everything that was written, look again, and return what is left (keys, or upload ids), if anything.

        Never raises a store's error, and does not trust the store: keys that a batch delete left are deleted singly.
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
        """Return the written keys that still exist; forget the others. Few are checked singly, many by a listing."""
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
            return listed is None or key in listed  # some deny access to missing keys; then the listing decides
        return True

    def _listed(self) -> set[str] | None:
        """Return the keys below the prefix; None when the store cannot list them."""
        with suppress(TierstateError):
            return {info.key for info in self.recorded.list(self._prefix) if info.key.startswith(self._prefix)}
        return None

    def _abort_uploads(self) -> list[str]:
        remaining: list[str] = []
        with suppress(TierstateError):
            for upload in list(self.recorded.unfinished_uploads(self._prefix)):
                if not upload.key.startswith(self._prefix):
                    continue  # another client's: a store that ignores the prefix must not cost others their uploads
                try:
                    self.recorded.abort_upload(upload)
                except TierstateError:
                    remaining.append(f"{upload.key} (upload {upload.upload_id})")
        return remaining


def _shows_nothing(error: TierstateError) -> bool:
    """Return whether the error is silence or a missing permission, which prove nothing about the promise."""
    return isinstance(error, Unavailable | AccessDenied) and not _cannot(error)


def _cannot(error: TierstateError) -> bool:
    """Return whether the store itself reports that it does not implement the request: then the promise is broken."""
    return error.facts.get("status") == NOT_IMPLEMENTED
