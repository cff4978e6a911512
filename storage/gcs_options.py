"""Makes the session of Google Cloud Storage's client, with its credentials."""

from __future__ import annotations

from typing import Any

import google.auth
from google.auth.credentials import AnonymousCredentials, Signing
from google.auth.exceptions import DefaultCredentialsError
from google.auth.transport.requests import AuthorizedSession, Request
from requests.adapters import HTTPAdapter

from ..state.errors import AccessDenied
from .options import StoreOptions

_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
_CONNECTIONS = 32
_anonymous: Any = AnonymousCredentials  # Google's classes have types, their constructors have none
_session: Any = AuthorizedSession


def authorized_session(options: StoreOptions, store: str) -> Any:
    """Return an HTTP session. Raises AccessDenied if Google's search finds no credentials and no endpoint is set."""
    if options.endpoint is not None and options.endpoint.startswith("http:"):
        credentials: Any = _anonymous()  # an emulator; a token is never sent unencrypted
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


def signing_account(session: Any) -> dict[str, Any] | None:
    """Return arguments for `Blob.generate_signed_url`. Returns None if the client's credentials cannot sign.

    Raises GoogleAuthError if there is no token for the request to Google.
    """
    credentials = session.credentials
    if isinstance(credentials, Signing):
        return {"credentials": credentials}
    email = getattr(credentials, "service_account_email", None)
    if email is None:
        return None
    if not credentials.valid:  # a machine in Google's cloud knows its account only after a refresh
        credentials.refresh(Request())
    return {"service_account_email": credentials.service_account_email, "access_token": credentials.token}
