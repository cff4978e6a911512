"""The options for access to an object store: one set for every kind of store."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from ..runtime.live_secret import LiveSecret, current
from ..state.errors import InvalidRequest
from .object_store import DEFAULT_PART_BYTES, MIB

MIN_PART_BYTES = 5 * MIB
"""S3 refuses smaller parts, except the last one."""
MAX_PART_BYTES = 5 * 1024 * MIB

Encryption = Literal["none", "AES256", "aws:kms"]


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """The options of a store in addition to its URL. Times are in seconds.

    ``endpoint`` is the server's URL, for Azure the account's URL. None means the cloud's own. ``credentials`` are S3's
    access key or Azure's account, and the secret. Without them, the cloud's library searches its usual places. Without
    ``proxy``, HTTPS_PROXY and NO_PROXY apply. ``part_bytes`` is for uploads that request no other size. ``concurrency``
    bounds the parts of one upload to S3 or Azure; all uploads together hold at most two more (`parts.PartShares`).

    ``region``, ``path_style``, ``sse`` and ``sse_kms_key_id`` are only for S3: `open.py` refuses them for ``gs`` and
    ``az``. ``path_style`` None means path style if there is an endpoint, else virtual hosts. ``sse`` is the encryption
    at rest; ``none`` leaves it to the bucket. ``sse_kms_key_id`` None means the account's key.

    ``storage_class`` is for the logs of segments only, which are large (Azure: access tier). None means the bucket's.
    """

    endpoint: str | None = None
    region: str | None = None
    path_style: bool | None = None
    proxy: str | None = field(default=None, repr=False)
    sse: Encryption = "none"
    sse_kms_key_id: str | None = None
    storage_class: str | None = None
    connect_timeout: float = 5
    read_timeout: float = 30
    max_attempts: int = 5
    request_timeout: float = 120
    throttle_timeout: float = 600
    part_bytes: int = DEFAULT_PART_BYTES
    concurrency: int = 4
    credentials: tuple[str | LiveSecret, str | LiveSecret] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.sse_kms_key_id is not None and self.sse != "aws:kms":
            raise InvalidRequest("a KMS key is used with sse = aws:kms only", sse=self.sse)
        if not MIN_PART_BYTES <= self.part_bytes <= MAX_PART_BYTES:
            raise InvalidRequest("S3 takes parts from 5 MiB to 5 GiB", part_bytes=self.part_bytes)

    def for_url(self, own: str, url: str) -> StoreOptions:
        """Return the options for the store ``url``. These are for ``own``: another cloud takes their limits alone."""
        if url.partition(":")[0] == own.partition(":")[0]:
            return self
        limits = replace(self, endpoint=None, region=None, path_style=None, credentials=None, storage_class=None)
        return replace(limits, sse="none", sse_kms_key_id=None)

    @property
    def keys(self) -> tuple[str, str] | None:
        return None if self.credentials is None else (current(self.credentials[0]), current(self.credentials[1]))

    def renew_keys(self) -> None:
        """Run the commands that print ``credentials`` again, because the store refused their values."""
        for secret in self.credentials or ():
            if isinstance(secret, LiveSecret):
                secret.renew()
