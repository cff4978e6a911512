"""Finds a broker's log that begins above all trims and orders of tierstate: it was cut by other means. Pure.

The broker's log start never moves the log start of the facts (`expire.py`), so the cut deletes no remote data. The
report includes the command that extends the cut: an operator who ran DeleteRecords may have meant both tiers.
"""

from __future__ import annotations

from ..state.facts import LocalTrimIntended
from ..state.lineage import begun_after
from ..state.offsets import Offset
from ..state.partition_view import PartitionView


def offsets_cut_elsewhere(view: PartitionView, local_start: Offset) -> int:
    """Return how many offsets the broker no longer has although no trim or log start of tierstate removed them."""
    if view.log_start is None or view.later:  # a fact that only a later release can read may be a trim
        return 0
    return max(0, local_start - max(view.log_start, _trimmed(view) or 0))


def cut_elsewhere(view: PartitionView, topic: str, local_start: Offset | None) -> str | None:
    """Return one sentence about `offsets_cut_elsewhere`; None if there are none."""
    if local_start is None or not offsets_cut_elsewhere(view, local_start):
        return None
    trimmed = _trimmed(view)
    limit = (
        f"our newest trim {trimmed}"
        if trimmed is not None
        else f"the log start {view.log_start}, and we trimmed nothing"
    )
    return (
        f"the broker begins at {local_start}, above {limit}: by Kafka's own retention, by tierstate rescue, by a trim "
        "whose fact was lost, or by DeleteRecords of an operator; readers get the records below from the remote tier. "
        "Only if an operator meant to delete them for good: "
        f"tierstate delete-records {topic}:{view.partition.partition} --before {local_start} --execute"
    )


def _trimmed(view: PartitionView) -> Offset | None:
    """Return the offset of tierstate's newest trim, at most the start of the first epoch after the trim's term."""
    trims = (live for live in reversed(view.others) if isinstance(live.fact, LocalTrimIntended))
    newest = next((live.fact for live in trims if live.key not in view.fenced), None)
    if not isinstance(newest, LocalTrimIntended):
        return view.trim_intended
    end = begun_after(newest.term.epoch, view.lineage)
    return newest.offset if end is None else min(newest.offset, end)
