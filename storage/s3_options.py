"""How an S3 store is reached, and boto3's client for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

import boto3
from botocore.config import Config
from botocore.handlers import add_expect_header

from ..state.errors import InvalidRequest
from .object_store import DEFAULT_PART_BYTES, MIB
from .patience import Limits

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

MIN_PART_BYTES = 5 * MIB
"""S3 refuses smaller parts, but for the last."""
MAX_PART_BYTES = 5 * 1024 * MIB

Encryption = Literal["none", "AES256", "aws:kms"]


@dataclass(frozen=True, slots=True)
class S3Options:
    """``path_style`` None: path style with an endpoint, virtual hosts without. Times in seconds.

    ``sse``: who encrypts objects at rest; ``none`` leaves it to the bucket. ``sse_kms_key_id`` None: the account's key.
    ``proxy`` None: as the environment says (HTTPS_PROXY, NO_PROXY). ``credentials`` None: boto3's own chain.
    ``part_bytes``: of an upload that does not ask for another size; 5 MiB at least.
    ``concurrency``: parts of one upload; all uploads together hold at most two more (`parts.PartShares`).
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
    credentials: tuple[str, str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.sse_kms_key_id is not None and self.sse != "aws:kms":
            raise InvalidRequest("a KMS key is used with sse = aws:kms only", sse=self.sse)
        if not MIN_PART_BYTES <= self.part_bytes <= MAX_PART_BYTES:
            raise InvalidRequest("S3 takes parts from 5 MiB to 5 GiB", part_bytes=self.part_bytes)

    @property
    def limits(self) -> Limits:
        return Limits(self.max_attempts, self.request_timeout, self.throttle_timeout)

    @property
    def write_arguments(self) -> dict[str, str]:
        """What every request that makes an object carries."""
        if self.sse == "none":
            return {}
        key = {"SSEKMSKeyId": self.sse_kms_key_id} if self.sse_kms_key_id is not None else {}
        return {"ServerSideEncryption": self.sse, **key}

    def part_size(self, asked: int) -> int:
        """``asked`` is `put_stream`'s: its default means ours."""
        return self.part_bytes if asked == DEFAULT_PART_BYTES else max(asked, MIN_PART_BYTES)


def s3_client(options: S3Options) -> S3Client:
    """Raises BotoCoreError, ValueError. It sends each request once: repeating is `patience.py`'s."""
    style = {True: "path", False: "virtual", None: "path" if options.endpoint is not None else "auto"}[
        options.path_style
    ]
    access_key, secret_key = options.credentials or (None, None)
    client = boto3.session.Session().client(
        "s3",
        endpoint_url=options.endpoint,
        region_name=options.region,
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        config=Config(
            connect_timeout=options.connect_timeout,
            read_timeout=options.read_timeout,
            retries={"mode": "standard", "total_max_attempts": 1},
            proxies={"http": options.proxy, "https": options.proxy} if options.proxy else None,
            s3=cast(Any, {"addressing_style": style}),
            max_pool_connections=32,
            user_agent_extra="tierstate",
        ),
    )
    # Bodies are files for botocore (`s3_body.py`), and for files it would wait up to a second for "100 Continue".
    client.meta.events.unregister("before-call.s3", add_expect_header)
    return client
