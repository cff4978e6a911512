"""How Google Cloud Storage is reached, and who we are there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import google.auth
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import DefaultCredentialsError
from google.auth.transport.requests import AuthorizedSession
from google.cloud import storage
from requests.adapters import HTTPAdapter

from ..state.errors import AccessDenied
from .object_store import DEFAULT_PART_BYTES
from .patience import Limits

_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
_CONNECTIONS = 32
_anonymous: Any = AnonymousCredentials  # Google's classes have types, their constructors have none
_session: Any = AuthorizedSession


@dataclass(frozen=True, slots=True)
class GcsOptions:
    """``proxy`` None: as the environment says (HTTPS_PROXY, NO_PROXY). Times in seconds.

    ``part_bytes``: of an upload that does not ask for another size; an upload holds at most three parts.
    """

    endpoint: str | None = None
    proxy: str | None = field(default=None, repr=False)
    connect_timeout: float = 5
    read_timeout: float = 30
    limits: Limits = field(default_factory=Limits)
    part_bytes: int = DEFAULT_PART_BYTES
    delete_concurrency: int = 8


def gcs_client(options: GcsOptions, session: Any) -> Any:
    # The session is ours (its size, its credentials), so that bodies are read from the pool the client uses.
    more = {"client_options": {"api_endpoint": options.endpoint}} if options.endpoint else {}
    return storage.Client(project=None, credentials=session.credentials, _http=session, **more)


def authorized_session(options: GcsOptions, store: str) -> Any:
    """An authorized HTTP session. Raises AccessDenied when Google's own search finds no credentials."""
    if options.endpoint is not None and options.endpoint.startswith("http:"):
        credentials: Any = _anonymous()  # an emulator: no token ever travels in the clear
    else:
        try:
            credentials, _ = google.auth.default(scopes=[_SCOPE])
        except DefaultCredentialsError as error:
            if options.endpoint is None:
                raise AccessDenied("no credentials for the store", store=store, reason=error) from error
            credentials = _anonymous()
    session = _session(credentials)
    session.mount("https://", HTTPAdapter(pool_connections=_CONNECTIONS, pool_maxsize=_CONNECTIONS))
    if options.proxy is not None:
        session.proxies = {"http": options.proxy, "https": options.proxy}
    session.mount("http://", HTTPAdapter(pool_connections=_CONNECTIONS, pool_maxsize=_CONNECTIONS))
    return session
