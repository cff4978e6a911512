"""How a command asks a gateway: its URL, and who asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..fetch.gateway import GatewayClient
    from .context import Context

COMMANDS = ("consume", "describe", "digest", "segments", "status", "topics")
"""Those that can ask a gateway; any other one that is told to refuses."""


def gateway_client(context: Context) -> GatewayClient:
    """Of ``--gateway``, else of the settings' own. To be closed. InvalidRequest: who asks is not said, or twice, or
    the bucket is to be read.
    """
    from ..app.gateway_login import client_certificate, gateway_login
    from ..fetch.gateway import GatewayClient
    from ..state.errors import InvalidRequest

    if context.settings.view.source == "bucket":
        raise InvalidRequest("--gateway or --source bucket, not both")
    url = context.gateway or f"http://{context.settings.gateway.listen}"
    login = gateway_login(context.token_file, context.user, "--token-file", "--user")
    return GatewayClient(
        url,
        token=login.token,
        basic=login.basic,
        ca=context.ca_file,
        certificate=client_certificate(context.cert_file, context.key_file, "--cert-file", "--key-file"),
        timeout=context.timeout or 60.0,
    )
