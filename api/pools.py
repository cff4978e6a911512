"""Local reads, remote reads and metadata calls have a pool each, so a cold scan never delays a hot read."""

from __future__ import annotations

from ..app.pools import Pool
from ..runtime.settings import Gateway

METADATA_CALLS = 8


class Pools:
    """One of each kind."""

    def __init__(self, settings: Gateway) -> None:
        self.local = Pool("gateway-local", settings.local_reads)
        self.remote = Pool("gateway-remote", settings.remote_reads)
        self.metadata = Pool("gateway-metadata", METADATA_CALLS)

    def close(self) -> None:
        for pool in (self.local, self.remote, self.metadata):
            pool.close()
