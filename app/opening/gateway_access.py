"""Access for another process that reads through a gateway, without credentials for the bucket or the brokers.

It is the counterpart of `split_reads.Access` for a gateway.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ...runtime.clock import Clock
from ...state.errors import InvalidRequest
from .split_reads import SplitReads

if TYPE_CHECKING:
    from ...fetch.gateway import ClientCertificate, GatewayClient
    from ...fetch.planned_split import PlannedSplit

GATEWAY_TIMEOUT_S = 60.0
TOKEN, PASSWORD = "TIERSTATE_TOKEN", "TIERSTATE_PASSWORD"


@dataclass(frozen=True, slots=True)
class GatewayAccess:
    """Access to a gateway, and to the store by the URLs that the gateway returns.

    ``token``, ``basic`` or ``certificate`` identify the caller. ``certificate`` and ``ca`` name files that each reading
    process must have. ``timeout_s``: limit for one answer, in seconds.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    basic: tuple[str, str] | None = field(default=None, repr=False)
    ca: Path | None = None
    certificate: ClientCertificate | None = None
    timeout_s: float = GATEWAY_TIMEOUT_S
    bucket_alone = False

    def client(self) -> GatewayClient:
        """Return a new client; the caller closes it. Raises InvalidRequest for an unusable certificate."""
        from ...fetch.gateway import GatewayClient

        return GatewayClient(
            self.url,
            token=self.token,
            basic=self.basic,
            ca=self.ca,
            certificate=self.certificate,
            timeout=self.timeout_s,
        )

    @contextmanager
    def reads(self, splits: Iterable[PlannedSplit], clock: Clock) -> Iterator[SplitReads]:
        from ...fetch.gateway_plans import GatewayGrants, GatewayTier
        from ...fetch.granted_objects import GrantedObjects

        splits = list(splits)
        segments = [part.segment for split in splits for part in split.parts if part.segment is not None]
        plan = next((split.plan for split in splits if split.plan), "")
        with closing(self.client()) as client, closing(GatewayGrants(client, plan)) as grants:
            objects = GrantedObjects(segments, grants, clock)
            yield SplitReads(objects, objects, GatewayTier(client))


def access_of(
    url: str,
    named: Callable[[str], str],
    *,
    token_file: Path | None = None,
    user: str | None = None,
    ca: Path | None = None,
    cert_file: Path | None = None,
    key_file: Path | None = None,
    timeout_s: float = GATEWAY_TIMEOUT_S,
) -> GatewayAccess:
    """Return the access to the gateway at ``url``. ``named`` returns an option as people write it, for errors.

    Without ``token_file`` the token is that of the environment. Raises InvalidRequest unless ``url`` is an HTTP URL
    with a host, and for an incomplete login, or two.
    """
    address, token = _url(url, named("gateway")), _token(token_file, named("token_file"))
    if user is not None and token is not None:
        raise InvalidRequest(f"{named('user')}, or a token: not both")
    password = os.environ.get(PASSWORD)
    if user is not None and password is None:
        raise InvalidRequest(f"{named('user')} needs its password in {PASSWORD}", user=user)
    certificate = client_certificate(cert_file, key_file, named("cert_file"), named("key_file"))
    basic = None if user is None else (user, password or "")
    return GatewayAccess(address, token, basic, ca, certificate, timeout_s)


def _url(text: str, option: str) -> str:
    url = text.strip()
    try:
        parts = urlsplit(url)
        complete = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        complete = False
    if not complete:
        raise InvalidRequest(f"{option} is a URL like http://HOST:PORT", given=repr(text))
    return url


def client_certificate(
    chain: Path | None, key: Path | None, chain_name: str, key_name: str
) -> ClientCertificate | None:
    """Return the certificate, or None without ``chain``. Raises InvalidRequest for a key without a chain."""
    from ...fetch.gateway import ClientCertificate

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
