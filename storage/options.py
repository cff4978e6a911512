"""How an object store is reached and spoken to: one set of options for every kind of store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ..runtime.live_secret import LiveSecret, current
from ..state.errors import InvalidRequest
from .object_store import DEFAULT_PART_BYTES, MIB
from .patience import Limits

MIN_PART_BYTES = 5 * MIB
"""S3 refuses smaller parts, but for the last."""
MAX_PART_BYTES = 5 * 1024 * MIB

Encryption = Literal["none", "AES256", "aws:kms"]


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Beside the URL. What only ``s3://`` has is said so; `open.py` refuses it elsewhere. Times in seconds.

    ``endpoint`` None: the cloud's own; of Azure, the account's URL. ``credentials`` None: the cloud library's own
    search; else S3's access key or Azure's account, and its secret. ``proxy`` None: as the environment says
    (HTTPS_PROXY, NO_PROXY). ``part_bytes``: of an upload that does not ask for another size. ``concurrency``: parts of
    one upload; of S3 all uploads together hold at most two more (`parts.PartShares`), of Azure each.

    Only S3: ``region``; ``path_style`` None: path style with an endpoint, virtual hosts without; ``sse``: who encrypts
    objects at rest, ``none`` leaves it to the bucket; ``sse_kms_key_id`` None: the account's key.
    """

    endpoint: str | None = None
    region: str | None = None
    path_style: bool | None = None
    proxy: str | None = field(default=None, repr=False)
    sse: Encryption = "none"
    sse_kms_key_id: str | None = None
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

    @property
    def keys(self) -> tuple[str, str] | None:
        """``credentials`` as they are now."""
        return None if self.credentials is None else (current(self.credentials[0]), current(self.credentials[1]))

    def renew_keys(self) -> None:
        """The store refused them: commands run again."""
        for each in self.credentials or ():
            if isinstance(each, LiveSecret):
                each.renew()

    @property
    def limits(self) -> Limits:
        return Limits(self.max_attempts, self.request_timeout, self.throttle_timeout)
