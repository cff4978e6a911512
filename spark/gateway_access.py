"""What an executor reads with where a gateway hands out the bytes: neither a key to the bucket nor to the brokers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..app.split_reads import SplitReads
from ..runtime.clock import Clock

if TYPE_CHECKING:
    from ..fetch.gateway import ClientCertificate, GatewayClient
    from ..fetch.planned_split import PlannedSplit

GATEWAY_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class GatewayAccess:
    """To a gateway, and by what it hands out to the store: neither a key to the bucket nor to the brokers.

    ``token``, ``basic`` or ``certificate``: who asks; that and ``ca``: files on the driver and on every executor.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    basic: tuple[str, str] | None = field(default=None, repr=False)
    ca: Path | None = None
    certificate: ClientCertificate | None = None
    bucket_alone = False

    def client(self) -> AbstractContextManager[GatewayClient]:
        """Asks nothing yet."""
        from ..fetch.gateway import GatewayClient

        return closing(
            GatewayClient(
                self.url,
                token=self.token,
                basic=self.basic,
                ca=self.ca,
                certificate=self.certificate,
                timeout=GATEWAY_TIMEOUT_S,
            )
        )

    @contextmanager
    def reads(self, splits: Iterable[PlannedSplit], clock: Clock) -> Iterator[SplitReads]:
        """As `Access.reads`."""
        from ..fetch.gateway_plans import GatewayGrants, GatewayTier
        from ..fetch.granted_objects import GrantedObjects

        splits = list(splits)
        segments = [part.segment for split in splits for part in split.parts if part.segment is not None]
        plan = next((split.plan for split in splits if split.plan), "")
        with self.client() as client, closing(GatewayGrants(client, plan)) as grants:
            objects = GrantedObjects(segments, grants, clock)
            yield SplitReads(objects, objects, GatewayTier(client))
