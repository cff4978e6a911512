"""The topic, mapping and history that a view, a checkpoint or a piece of the archive belongs to."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from .object_names import TierPlace

FORMAT = 3
BEFORE_ANCHORS = 2
"""An earlier format, without anchors, whose views are still opened."""


@dataclass(frozen=True, slots=True)
class ViewIdentity:
    """The identity of a view. A folder with another identity is never opened as this one.

    ``history``: of the topic (`histories.py`): which archive and checkpoints go with it. A view shows what the topic
    has now, whichever history that is, so its folder does not name the history.
    """

    cluster_id: str
    topic_id: str
    partitions: int
    format: int = FORMAT
    history: int = 0

    def place(self, tier_partition: int) -> TierPlace:
        """Return the place of a partition's archive and checkpoints in the store."""
        return TierPlace(self.topic_id, tier_partition, self.history)

    @property
    def record(self) -> dict[str, object]:
        """The identity as a view's folder stores it."""
        return {name: value for name, value in asdict(self).items() if name != "history"}
