"""The URL and the login by which a command reaches a gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..app.opening.gateway_access import GatewayAccess
    from ..fetch.gateway import GatewayClient
    from .context import Context

COMMANDS = ("consume", "describe", "digest", "export", "leases", "segments", "status", "topics")
"""Commands that can ask a gateway; any other command refuses ``--gateway``."""


def gateway_client(context: Context) -> GatewayClient:
    """Return a client of the gateway, which the caller must close. Raises as `gateway_access`."""
    return gateway_access(context).client()


def gateway_access(context: Context) -> GatewayAccess:
    """Return URL and login of the gateway of ``--gateway``, by default that of ``gateway.listen``.

    Raises InvalidRequest if the URL is invalid, the login is incomplete or given twice, or the source is the bucket.
    """
    from ..app.opening.gateway_access import GATEWAY_TIMEOUT_S, GatewayAccess, gateway_url
    from ..app.opening.gateway_login import client_certificate, gateway_login
    from ..state.errors import InvalidRequest

    if context.settings.view.source == "bucket":
        raise InvalidRequest("--gateway or --source bucket, not both")
    url = gateway_url(context.gateway or f"http://{context.settings.gateway.listen}", "--gateway")
    login = gateway_login(context.token_file, context.user, "--token-file", "--user")
    certificate = client_certificate(context.cert_file, context.key_file, "--cert-file", "--key-file")
    timeout_s = context.timeout or GATEWAY_TIMEOUT_S
    return GatewayAccess(url, login.token, login.basic, context.ca_file, certificate, timeout_s)
