"""URLs that allow reading one object without the store's credentials, for a limited time. Plans may contain them.

Until the URL expires, its holder can read any range of the object, also offsets of the segment that were not
requested. The URL cannot be revoked. It contains bucket and key.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

LONGEST_S = 12 * 3600.0
"""Longest lifetime of a URL, in seconds; all clouds allow it. A URL ends earlier if Amazon's temporary credentials or
Azure's delegation key expire. Then the store answers 403, and the reader requests another URL."""


@runtime_checkable
class SignsReads(Protocol):
    """A store that can sign URLs. A folder cannot."""

    def signed_url(self, key: str, seconds: float) -> str | None:
        """Return a URL to GET this object for ``seconds``. Returns None if the credentials cannot sign (an emulator).

        Raises AccessDenied and StorageUnavailable, because some clouds sign by a request.
        """
        ...
