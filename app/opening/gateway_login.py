"""How a client logs in at a gateway: by a token from a file or the environment, or by a user's name and password."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from ...fetch.gateway import ClientCertificate
from ...state.errors import InvalidRequest

TOKEN, PASSWORD = "TIERSTATE_TOKEN", "TIERSTATE_PASSWORD"


@dataclass(frozen=True, slots=True)
class GatewayLogin:
    """A login by ``token``, or by ``basic`` (user name and password). Without both, the client is anonymous."""

    token: str | None = field(default=None, repr=False)
    basic: tuple[str, str] | None = field(default=None, repr=False)


def gateway_login(token_file: Path | None, user: str | None, file_name: str, user_name: str) -> GatewayLogin:
    """Return the login. The names are those of options. Raises InvalidRequest for an incomplete login, or for two."""
    token = _token(token_file, file_name)
    if user is not None and token is not None:
        raise InvalidRequest(f"{user_name}, or a token: not both")
    password = os.environ.get(PASSWORD)
    if user is not None and password is None:
        raise InvalidRequest(f"{user_name} needs its password in {PASSWORD}", user=user)
    return GatewayLogin(token, None if user is None else (user, password or ""))


def client_certificate(
    chain: Path | None, key: Path | None, chain_name: str, key_name: str
) -> ClientCertificate | None:
    """Return the certificate, or None without ``chain``. Raises InvalidRequest for a key without a chain."""
    if chain is None and key is not None:
        raise InvalidRequest(f"{key_name} needs {chain_name}", key=key)
    return None if chain is None else ClientCertificate(chain, key)


def _token(file: Path | None, name: str) -> str | None:
    if file is None:
        return os.environ.get(TOKEN)
    try:
        token = file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the file of {name} cannot be read", file=file, reason=error) from error
    if not token or len(token.split()) != 1:
        raise InvalidRequest(f"the file of {name} has no token in it, or more than one", file=file)
    return token
