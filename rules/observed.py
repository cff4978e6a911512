"""Observations of a partition in addition to its view: the state of the broker and its disk at the last look."""

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
    """The reasons not to copy, trim or delete now (`prefix.py`); None allows it. Each field implies the next one.

    ``delete`` also covers each step that replaces an object or uses a name that a copy of the cluster would use.
    """

    copy: Why | None = None
    trim: Why | None = None
    delete: Why | None = None


PROVEN = PrefixProof()


@dataclass(frozen=True, slots=True)
class Observed:
    """A look at a partition. ``segments``: ascending, the last one active. ``epochs``: the leader epoch checkpoint."""

    segments: tuple[LocalSegment, ...]
    epochs: Lineage
    bounds: LocalBounds
    config: TopicConfig
    groups: GroupsSeen
    drift: str | None = None
    """How the tier-state topic's configuration differs from a safe one; None if it does not."""
    prefix: PrefixProof = PROVEN


@dataclass(frozen=True, slots=True)
class GroupsSeen:
    """The offsets that consumer groups keep on the broker, at ``asked_at``, which may be minutes ago.

    ``holds``: each group's lowest offset that it still needs (empty if no group holds); None if not all groups are
    known; ``unknown`` is the reason. ``uncommitted``: groups with a member and no commit; they hold the local start.
    """

    holds: Mapping[str, Offset] | None
    unknown: str | None = None
    uncommitted: Collection[str] = ()
    asked_at: TimestampMs | None = None


NO_GROUPS = GroupsSeen({})
"""The value if consumer groups are not to be considered."""
