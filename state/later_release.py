"""What a later release wrote is not lost: readers say "upgrade this process", and nobody is advised to recover.

A fact that this version cannot read may be any of a log start, a copy, a deletion, or the acceptance of a gap. What the
other facts answer is answered. What they do not explain (a gap, an object that is missing, no log start) may be
explained by that fact*.
"""

from __future__ import annotations

from .errors import UpgradeNeeded
from .partition_view import PartitionView


def require_readable(view: PartitionView, topic: str | None) -> None:
    """Raises UpgradeNeeded where a later release wrote a fact of this partition that may not be ignored."""
    if view.later:
        more = f" (and {len(view.later) - 1} more)" if len(view.later) > 1 else ""
        raise UpgradeNeeded(
            f"a later release wrote facts of this partition: upgrade this process; {view.later[0]}{more}",
            topic=topic or view.topic,
            partition=view.partition.partition,
        )
