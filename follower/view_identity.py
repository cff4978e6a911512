"""Of which topic, mapping and history a view, a checkpoint or a piece of the archive is."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from .object_names import TierPlace

FORMAT = 3
BEFORE_ANCHORS = 2
"""A format of which views are still opened: they have no anchors yet."""


@dataclass(frozen=True, slots=True)
class ViewIdentity:
    """What a view is a view of. A folder with another identity is never opened as this one.

    ``history``: of the topic (`histories.py`): which archive and checkpoints go with it. A view is of what the topic
    has now, whichever history that is, so its folder does not say it.
    """

    cluster_id: str
    topic_id: str
    partitions: int
    format: int = FORMAT
    history: int = 0

    def place(self, tier_partition: int) -> TierPlace:
        """Where the store keeps what is kept of a partition."""
        return TierPlace(self.topic_id, tier_partition, self.history)

    @property
    def said(self) -> dict[str, object]:
        """As a view's folder has it."""
        return {name: value for name, value in asdict(self).items() if name != "history"}
