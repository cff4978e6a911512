"""Makes the client of Azure Blob Storage: its options and its credentials."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from azure.core.credentials import AzureNamedKeyCredential
from azure.identity import DefaultAzureCredential
from azure.storage.blob import ContainerClient

from ..state.errors import InvalidRequest
from .object_store import MIB
from .options import StoreOptions

CONNECTION_STRING = "AZURE_STORAGE_CONNECTION_STRING"
ONE_REQUEST_BYTES = 64 * MIB
GET_BYTES = 32 * MIB
"""Most bytes of one GET. Microsoft's client would split a larger one, and `azure.py` would not see all answers."""


def azure_client(
    container: str, options: StoreOptions, connection_string: str | None, store: str
) -> tuple[ContainerClient, DefaultAzureCredential | None]:
    """Return the client, and credentials to close after it or None.

    The account's key is used, else the connection string, else Microsoft's own search. Raises InvalidRequest.
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
    if connection_string is not None:
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
