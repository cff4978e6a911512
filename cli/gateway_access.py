"""How a command asks a gateway: its URL, and who asks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ..state.errors import InvalidRequest

if TYPE_CHECKING:
    from ..fetch.gateway import GatewayClient
    from .context import Context

TOKEN, PASSWORD = "TIERSTATE_TOKEN", "TIERSTATE_PASSWORD"
COMMANDS = ("consume", "digest", "segments", "topics")
"""Those that can ask a gateway; any other one that is told to refuses."""


def gateway_client(context: Context) -> GatewayClient:
    """Of ``--gateway``, else of the settings' own. To be closed. InvalidRequest: who asks is not said, or twice."""
    from ..fetch.gateway import GatewayClient

    url = context.gateway or f"http://{context.settings.gateway.listen}"
    token = _token(context.token_file)
    if context.user is not None and token is not None:
        raise InvalidRequest("--user, or a token: not both")
    password = os.environ.get(PASSWORD)
    if context.user is not None and password is None:
        raise InvalidRequest(f"--user needs its password in {PASSWORD}", user=context.user)
    basic = None if context.user is None else (context.user, password or "")
    return GatewayClient(url, token=token, basic=basic, ca=context.ca_file, timeout=context.timeout or 60.0)


def _token(file: Path | None) -> str | None:
    if file is None:
        return os.environ.get(TOKEN)
    try:
        found = file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest("the file of --token-file cannot be read", file=file, reason=error) from error
    if not found or len(found.split()) != 1:
        raise InvalidRequest("the file of --token-file has no token in it, or more than one", file=file)
    return found
