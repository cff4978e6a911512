"""Shared access signatures (SAS) of Azure: signed permissions to read one blob until a given time.

https://learn.microsoft.com/rest/api/storageservices/create-service-sas and …/create-user-delegation-sas
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

from azure.core.credentials import TokenCredential
from azure.storage.blob import (
    BlobSasPermissions,
    BlobServiceClient,
    ContainerClient,
    UserDelegationKey,
    generate_blob_sas,
)

from ..runtime.clock import Clock
from .signed_urls import LONGEST_S

SKEW_S = 300.0
"""A signature is valid from this many seconds ago, because the clocks of Azure and of this machine may differ."""


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
                until = now + timedelta(seconds=2 * LONGEST_S)
                parts = urlsplit(self._container.url)
                account = f"{parts.scheme}://{parts.netloc}"
                with BlobServiceClient(account, self._credential) as service:
                    key = service.get_user_delegation_key(now - timedelta(seconds=SKEW_S), until)
                self._delegated = until, key
            return self._delegated[1]
