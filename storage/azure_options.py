"""Makes the client of Azure Blob Storage, and shared access signatures (SAS): permissions to read one blob for a time.

https://learn.microsoft.com/rest/api/storageservices/create-service-sas and …/create-user-delegation-sas
"""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from azure.core.credentials import AzureNamedKeyCredential, TokenCredential
from azure.identity import DefaultAzureCredential
from azure.storage.blob import (
    BlobSasPermissions,
    BlobServiceClient,
    ContainerClient,
    UserDelegationKey,
    generate_blob_sas,
)

from ..runtime.clock import Clock
from ..state.errors import InvalidRequest
from .object_store import MIB
from .options import StoreOptions

CONNECTION_STRING = "AZURE_STORAGE_CONNECTION_STRING"
ONE_REQUEST_BYTES = 64 * MIB
GET_BYTES = 32 * MIB
"""Most bytes of one GET. Microsoft's client would split a larger one, and `azure.py` would not see all answers."""
DELEGATED_S = 24 * 3600.0
SKEW_S = 300.0
"""A signature is valid from this many seconds ago, because the clocks of Azure and of this machine may differ."""


def azure_client(
    container: str, options: StoreOptions, store: str
) -> tuple[ContainerClient, DefaultAzureCredential | None]:
    """Return the client, and credentials to close after it or None.

    The account's key is used, else the connection string in the environment, else Microsoft's own search. Raises
    InvalidRequest.
    """
    more: dict[str, Any] = {
        "retry_total": 0,
        "connection_timeout": options.connect_timeout,
        "read_timeout": options.read_timeout,
        "max_single_put_size": ONE_REQUEST_BYTES,
        "max_single_get_size": GET_BYTES,
        "max_chunk_get_size": GET_BYTES,
        "user_agent": "tierstate",
    }
    if options.proxy is not None:
        more["proxies"] = {"http": options.proxy, "https": options.proxy}
    if options.keys is not None:
        account, key = options.keys
        url = options.endpoint or f"https://{account}.blob.core.windows.net"
        return ContainerClient(url, container, AzureNamedKeyCredential(account, key), **more), None
    if connection_string := os.environ.get(CONNECTION_STRING):
        client = ContainerClient.from_connection_string(connection_string, container, **more)
        if options.endpoint is not None and not client.url.startswith(options.endpoint.rstrip("/") + "/"):
            raise InvalidRequest(
                "the connection string in the environment is of another account than the endpoint",
                store=store,
                endpoint=options.endpoint,
                variable=CONNECTION_STRING,
            )
        return client, None
    if options.endpoint is None:
        raise InvalidRequest(
            "an Azure store needs its account: its URL as the endpoint, or a connection string in the environment",
            store=store,
            example="https://ACCOUNT.blob.core.windows.net",
            variable=CONNECTION_STRING,
        )
    if urlsplit(options.endpoint).scheme != "https":
        raise InvalidRequest(
            "without an account key the endpoint is https: a token must not travel in the clear",
            store=store,
            endpoint=options.endpoint,
        )
    credential = DefaultAzureCredential()
    return ContainerClient(options.endpoint, container, credential, **more), credential


class SharedAccess:
    """Signs reads of one container. Thread-safe. ``credential`` is None if the client has the account's key."""

    def __init__(self, container: ContainerClient, credential: TokenCredential | None, clock: Clock) -> None:
        self._container, self._credential, self._clock = container, credential, clock
        self._lock = threading.Lock()
        self._delegated: tuple[datetime, UserDelegationKey] | None = None

    def of(self, blob: str, seconds: float) -> str:
        """Return the query string for a blob's URL. Raises AzureError, as a delegation key may have to be requested."""
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
        ends = now + timedelta(seconds=seconds)
        key = self._container.credential
        by_account = self._credential is None and key is not None
        return generate_blob_sas(
            str(self._container.account_name),
            self._container.container_name,
            blob,
            account_key=key.account_key if by_account else None,
            user_delegation_key=None if by_account else self._delegation_key(now, ends),
            permission=BlobSasPermissions(read=True),
            start=now - timedelta(seconds=SKEW_S),
            expiry=ends,
            protocol="https" if self._container.url.startswith("https:") else None,
        )

    def _delegation_key(self, now: datetime, ends: datetime) -> UserDelegationKey:
        with self._lock:
            if self._delegated is None or self._delegated[0] < ends:
                until = now + timedelta(seconds=DELEGATED_S)
                parts = urlsplit(self._container.url)
                account = f"{parts.scheme}://{parts.netloc}"
                with BlobServiceClient(account, self._credential) as service:
                    key = service.get_user_delegation_key(now - timedelta(seconds=SKEW_S), until)
                self._delegated = until, key
            return self._delegated[1]
