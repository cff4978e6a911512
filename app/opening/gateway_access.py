"""Access for another process that reads through a gateway, without credentials for the bucket or the brokers.

It is the counterpart of `split_reads.Access` for a gateway.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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


def gateway_url(text: str, option: str) -> str:
    """Return the URL ``text`` of ``option``, stripped. Raises InvalidRequest unless it is an HTTP URL with a host."""
    url = text.strip()
    try:
        parts = urlsplit(url)
        complete = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        complete = False
    if not complete:
        raise InvalidRequest(f"{option} is a URL like http://HOST:PORT", given=repr(text))
    return url


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
        """Yield the reads of these splits, as `split_reads.LogAccess.reads` does."""
        from ...fetch.gateway_plans import GatewayGrants, GatewayTier
        from ...fetch.granted_objects import GrantedObjects

        splits = list(splits)
        segments = [part.segment for split in splits for part in split.parts if part.segment is not None]
        plan = next((split.plan for split in splits if split.plan), "")
        with closing(self.client()) as client, closing(GatewayGrants(client, plan)) as grants:
            objects = GrantedObjects(segments, grants, clock)
            yield SplitReads(objects, objects, GatewayTier(client))
