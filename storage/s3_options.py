"""Makes the client of an S3 store, and the arguments of its requests, from the store's options."""

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
from .options import StoreOptions

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


class StoreKeys(Credentials):
    """The access keys that sign requests, from the options, else from boto's own search. Looked up for each request.

    boto reads a credentials file, or a `credential_process` without expiry, only once. `renew` reads them again.
    """

    method = "explicit"

    def __init__(self, options: StoreOptions, clock: Clock) -> None:
        self._clock = clock
        self._options, self._credentials = options, None if options.credentials else _search()
        self._searched = float("-inf")
        """Monotonic time in seconds of the last repeated search, to limit how often `renew` searches."""
        self._request = threading.local()

    def get_frozen_credentials(self) -> Any:
        self._request.signed_with = keys = self._now()
        return keys

    def load_credentials(self) -> StoreKeys | None:
        """Return this object to botocore, for which it is a credential provider. Returns None if there are no keys."""
        return None if self._now() is None else self

    def renew(self) -> bool:
        """Look for new keys after the store refused those of this thread's last request. Return True if they differ."""
        self._options.renew_keys()
        now = self._clock.monotonic()
        if self._credentials is not None and now - self._searched > live_secret.AGAIN_S:
            self._credentials, self._searched = _search() or self._credentials, now
        return self._now() != self._signed

    @property
    def signed_with(self) -> str:
        """Id (no secret) of the access key that signed this thread's last request, or an empty text."""
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
    """Return a client that sends each request once; `retry_policy.py` repeats it. Raises BotoCoreError, ValueError."""
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
            signature_version="s3v4",  # boto3 would sign URLs of some regions by the previous version
            max_pool_connections=32,
            user_agent_extra="tierstate",
        ),
    )
    # botocore takes bodies for files (`s3_body.py`) and would wait up to a second for "100 Continue" before each.
    client.meta.events.unregister("before-call.s3", add_expect_header)
    return cast("S3Client", client)


@cache
def _loader(data_path: str | None) -> Loader:
    """Return the loader of botocore's service description, which is parsed only once per process. Opening a store, as
    each Spark task does, then takes 0.04 s of CPU instead of 0.21 s.
    """
    return create_loader(data_path)
