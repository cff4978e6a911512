"""The parts that all connections of a proxy share."""

from __future__ import annotations

from dataclasses import dataclass

from .budget import Budget
from .cold_reads import RemoteReads
from .counts import Counts
from .deletions import Deletions
from .known_bounds import KnownBounds
from .listeners import Listeners
from .older_offsets import OlderOffsets
from .read_log import ReadLog
from .topic_names import TopicNames


@dataclass(frozen=True, slots=True)
class ProxyParts:
    """The shared parts. ``remote_wait_s``: the most seconds that an answer without records waits for remote records.

    ``whole_log``: the brokers know both tiers themselves (KIP-405), and only remote records are kept off them.
    """

    remote_reads: RemoteReads
    bounds: KnownBounds
    names: TopicNames
    older: OlderOffsets
    deletions: Deletions
    listeners: Listeners
    counts: Counts
    read_log: ReadLog
    read_only: bool
    remote_wait_s: float
    whole_log: bool = False

    @property
    def budget(self) -> Budget:
        return self.remote_reads.budget
