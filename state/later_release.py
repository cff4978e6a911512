"""Facts that a later release wrote are not lost: readers report "upgrade this process" and do not advise a recovery.

A fact that this version cannot read may be a log start, a copy, a deletion, or the acceptance of a gap. Requests that
the other facts can answer are answered. A gap, a missing object or a missing log start raises UpgradeNeeded instead:
the unreadable fact may explain it.
"""

from __future__ import annotations

from .errors import UpgradeNeeded
from .partition_view import PartitionView


def require_readable(view: PartitionView, topic: str | None) -> None:
    """Raise UpgradeNeeded if a later release wrote a fact of this partition that must not be ignored."""
    if view.later:
        more = f" (and {len(view.later) - 1} more)" if len(view.later) > 1 else ""
        raise UpgradeNeeded(
            f"a later release wrote facts of this partition: upgrade this process; {view.later[0]}{more}",
            topic=topic or view.topic,
            partition=view.partition.partition,
        )
