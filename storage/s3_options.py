"""The options of an S3 store as boto3 takes them."""

from __future__ import annotations

import threading
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import botocore.session
from botocore.config import Config
from botocore.credentials import Credentials, ReadOnlyCredentials
from botocore.handlers import add_expect_header
from botocore.loaders import Loader, create_loader

from ..runtime import live_secret
from ..runtime.clock import Clock
from .object_store import DEFAULT_PART_BYTES
from .options import MIN_PART_BYTES, StoreOptions

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


def write_arguments(options: StoreOptions) -> dict[str, str]:
    """Return the arguments of every request that creates an object."""
    if options.sse == "none":
        return {}
    key = {"SSEKMSKeyId": options.sse_kms_key_id} if options.sse_kms_key_id is not None else {}
    return {"ServerSideEncryption": options.sse, **key}


def part_size(options: StoreOptions, size: int) -> int:
    """Return the bytes of a part. ``size``: of `put_stream`; its default stands for the size in the options."""
    return options.part_bytes if size == DEFAULT_PART_BYTES else max(size, MIN_PART_BYTES)


class StoreKeys(Credentials):
    """The keys that sign requests, looked up for each request: those of the options, or else of boto's own search.

    boto reads a credentials file, and a `credential_process` without an expiry, only once: `renew` does so again.
    """

    method = "explicit"

    def __init__(self, options: StoreOptions, clock: Clock) -> None:
        self._clock = clock
        self._options, self._credentials = options, None if options.credentials else _search()
        self._searched = float("-inf")
        """Monotonic second of the last repeated search. A missing permission must not cause endless searches."""
        self._request = threading.local()

    def get_frozen_credentials(self) -> Any:
        self._request.signed_with = keys = self._now()
        return keys

    def load_credentials(self) -> StoreKeys | None:
        """Return these keys to botocore, which takes this for a provider. None: there are none."""
        return None if self._now() is None else self

    def renew(self) -> bool:
        """Look for new keys after the store refused those of this thread's last request; return whether there are."""
        self._options.renew_keys()
        now = self._clock.monotonic()
        if self._credentials is not None and now - self._searched > live_secret.AGAIN_S:
            self._credentials, self._searched = _search() or self._credentials, now
        return self._now() != self._signed

    @property
    def signed_with(self) -> str:
        """Id of the key that signed this thread's last request. It is no secret."""
        return str(self._signed.access_key) if self._signed is not None else ""

    @property
    def _signed(self) -> ReadOnlyCredentials | None:
        return getattr(self._request, "signed_with", None)

    def _now(self) -> ReadOnlyCredentials | None:
        keys = self._options.keys
        if keys is not None:
            return ReadOnlyCredentials(*keys, None)
        return self._credentials and self._credentials.get_frozen_credentials()


def _search() -> Any:
    return botocore.session.get_session().get_credentials()


def s3_client(options: StoreOptions, keys: StoreKeys) -> S3Client:
    """Return a client that sends each request once: `retry_policy.py` repeats it. Raises BotoCoreError, ValueError."""
    style = {True: "path", False: "virtual", None: "path" if options.endpoint is not None else "auto"}[
        options.path_style
    ]
    session = botocore.session.get_session()
    session.register_component("credential_provider", keys)
    session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
    client: Any = session.create_client(
        "s3",
        endpoint_url=options.endpoint,
        region_name=options.region,
        config=Config(
            connect_timeout=options.connect_timeout,
            read_timeout=options.read_timeout,
            retries={"mode": "standard", "total_max_attempts": 1},
            proxies={"http": options.proxy, "https": options.proxy} if options.proxy else None,
            s3=cast(Any, {"addressing_style": style}),
            signature_version="s3v4",  # for signed URLs too: in some regions boto3 still uses the previous version
            max_pool_connections=32,
            user_agent_extra="tierstate",
        ),
    )
    # Bodies are files for botocore (`s3_body.py`), and for files it would wait up to a second for "100 Continue".
    client.meta.events.unregister("before-call.s3", add_expect_header)
    return cast("S3Client", client)


@cache
def _loader(data_path: str | None) -> Loader:
    """Return botocore's description of the service, parsed once per process: opening a store, as each Spark task does,
    takes 0.04 s of CPU instead of 0.21 s.
    """
    return create_loader(data_path)
