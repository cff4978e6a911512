"""What is known of a partition beside its view: what the broker and its disk said when they were asked."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ..state.epochs import Lineage
from ..state.local_segments import LocalSegment
from ..state.offsets import Offset, TimestampMs
from ..state.routing import LocalBounds
from ..state.topics import TopicConfig
from .reasons import Why


@dataclass(frozen=True, slots=True)
class PrefixProof:
    """Why the agent does not copy, trim, or delete now (`prefix.py`); None: it does. Each field implies the next one.

    ``delete``: also each step that replaces an object, or takes a name that a copy of the cluster would take.
    """

    copy: Why | None = None
    trim: Why | None = None
    delete: Why | None = None


PROVEN = PrefixProof()


@dataclass(frozen=True, slots=True)
class Observed:
    """``segments``: ascending, the last one active. ``epochs``: the broker's leader epoch checkpoint."""

    segments: tuple[LocalSegment, ...]
    epochs: Lineage
    bounds: LocalBounds
    config: TopicConfig
    groups: GroupsSeen
    drift: str | None = None
    """How the tier-state topic's configuration differs from what is safe."""
    prefix: PrefixProof = PROVEN


@dataclass(frozen=True, slots=True)
class GroupsSeen:
    """What consumer groups keep on the broker, as of when they were asked for; that may be minutes ago.

    ``holds``: group to the lowest offset it still needs (empty: nobody holds); None: not all groups are known, and
    ``unknown`` says why. ``uncommitted``: those that have a member and no commit, and hold the local start.
    """

    holds: Mapping[str, Offset] | None
    unknown: str | None = None
    uncommitted: Collection[str] = ()
    asked_at: TimestampMs | None = None


NO_GROUPS = GroupsSeen({})
"""Groups do not count."""
