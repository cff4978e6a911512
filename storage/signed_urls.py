"""URLs that read one object without the store's credentials, for a while. The readers of a plan receive them.

A URL's holder can read any range of the whole object until the URL expires, also offsets of the segment that were not
requested. The URL cannot be revoked. It shows bucket and key.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

LONGEST_S = 12 * 3600.0
"""Lifetime that all clouds sign. Amazon's temporary credentials and Azure's delegation keys may expire earlier, and the
URL with them: then the store answers 403, and the reader requests another URL."""


@runtime_checkable
class SignsReads(Protocol):
    """A store that can sign URLs. A folder cannot."""

    def signed_url(self, key: str, seconds: float) -> str | None:
        """Return a URL to GET this object for ``seconds``; None when the credentials, as of an emulator, cannot sign.

        Raises AccessDenied, StorageUnavailable: some clouds sign by a request.
        """
        ...
