"""Observations of a partition in addition to its view: the state of the broker and its disk."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ..state.epochs import Lineage
from ..state.local_segments import LocalSegment
from ..state.offsets import Offset, TimestampMs
from ..state.retention import TopicConfig
from ..state.routing import LocalBounds
from .reasons import Why


@dataclass(frozen=True, slots=True)
class PrefixProof:
    """The reasons not to copy, trim or delete now (`prefix.py`); None allows it. If one is set, so are those after it.

    ``delete`` also covers each step that replaces an object or uses a name that a copy of the cluster would use.
    """

    copy: Why | None = None
    trim: Why | None = None
    delete: Why | None = None


PROVEN = PrefixProof()


@dataclass(frozen=True, slots=True)
class Observed:
    """An observation of a partition. ``segments``: ascending, the last one active.

    ``checkpoint``: the broker's epochs. ``epochs``: the same, continued down to the log start (`continued_down`).
    """

    segments: tuple[LocalSegment, ...]
    checkpoint: Lineage
    epochs: Lineage
    bounds: LocalBounds
    config: TopicConfig
    groups: GroupsSeen
    drift: str | None = None
    """Why the configuration or the archive of the tier-state topic is not safe; None if both are."""
    prefix: PrefixProof = PROVEN


@dataclass(frozen=True, slots=True)
class GroupsSeen:
    """The offsets that consumer groups need on the broker, as of ``asked_at``, which may be minutes ago.

    ``holds``: the lowest offset that each group needs; empty if no group needs any. It is None if not all groups are
    known; ``unknown`` is the reason. ``uncommitted``: groups with a member and no commit; they hold the local start.
    """

    holds: Mapping[str, Offset] | None
    unknown: str | None = None
    uncommitted: Collection[str] = ()
    asked_at: TimestampMs | None = None


NO_GROUPS = GroupsSeen({})
"""The value if consumer groups are not to be considered."""
