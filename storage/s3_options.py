"""The options of an S3 store as boto3 takes them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, cast

import botocore.session
from botocore.config import Config
from botocore.handlers import add_expect_header
from botocore.loaders import Loader, create_loader

from .object_store import DEFAULT_PART_BYTES
from .options import MIN_PART_BYTES, StoreOptions

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


def write_arguments(options: StoreOptions) -> dict[str, str]:
    """What every request that makes an object carries."""
    if options.sse == "none":
        return {}
    key = {"SSEKMSKeyId": options.sse_kms_key_id} if options.sse_kms_key_id is not None else {}
    return {"ServerSideEncryption": options.sse, **key}


def part_size(options: StoreOptions, asked: int) -> int:
    """``asked`` is `put_stream`'s: its default means the options'."""
    return options.part_bytes if asked == DEFAULT_PART_BYTES else max(asked, MIN_PART_BYTES)


def s3_client(options: StoreOptions) -> S3Client:
    """Raises BotoCoreError, ValueError. It sends each request once: repeating is `patience.py`'s."""
    style = {True: "path", False: "virtual", None: "path" if options.endpoint is not None else "auto"}[
        options.path_style
    ]
    access_key, secret_key = options.credentials or (None, None)
    session = botocore.session.get_session()
    session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
    client: Any = session.create_client(
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
            signature_version="s3v4",  # of signed URLs too: for some regions boto3 still takes the one before
            max_pool_connections=32,
            user_agent_extra="tierstate",
        ),
    )
    # Bodies are files for botocore (`s3_body.py`), and for files it would wait up to a second for "100 Continue".
    client.meta.events.unregister("before-call.s3", add_expect_header)
    return cast("S3Client", client)


@cache
def _loader(data_path: str | None) -> Loader:
    """What botocore knows of the service, parsed once a process: opening a store, as each Spark task does, takes 0.04 s
    of CPU in place of 0.21.
    """
    return create_loader(data_path)
