"""URLs that read one object without the store's credentials, for a while: what a plan's readers are given.

Whoever has one reads the whole object, any range of it, until it ends: also offsets of the same segment that were not
asked for. Nothing takes it back. It says bucket and key.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

LONGEST_S = 12 * 3600.0
"""What all clouds sign; Amazon's temporary credentials and Azure's delegation keys may end earlier, and with them the
URL: then the store answers 403, and who reads asks for another."""


@runtime_checkable
class SignsReads(Protocol):
    """A store that can. A folder cannot."""

    def signed_url(self, key: str, seconds: float) -> str | None:
        """GET of this object, for so long. None: these credentials can sign nothing, as those of an emulator.

        Raises AccessDenied, StorageUnavailable: some clouds must be asked.
        """
        ...
