"""A person accepts gaps in generated histories, with the command's own checks. Some facts are appended steps later.

The seed and the step alone decide it, so that histories without accepted gaps stay the same.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from tests.histories.cluster import NAME, HistoryControl
from tests.twins.counting_ids import CountingIds
from tierstate.app.operating.gap_acceptance import Gaps, acceptance, require_gone
from tierstate.state.errors import TierstateError
from tierstate.state.facts import GapAccepted
from tierstate.state.object_keys import ObjectKeys
from tierstate.state.offsets import Offset, OffsetRange

if TYPE_CHECKING:
    from tests.histories.world import World

CHANCE, ACCEPTS = 0.5, 0.05
FIRST_ID = 1_000_000


class GapAcceptor:
    """Accepts gaps in half of the histories. ``lost``: numbers of the batches that a person accepted as lost."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._active = Random(f"gaps of {world.seed}").random() < CHANCE
        self._ids = CountingIds(FIRST_ID)
        self._slow: list[GapAccepted] = []
        self.lost: set[int] = set()

    def step(self) -> None:
        """Accept one gap now and then, or append a fact that was decided at an earlier step."""
        if not self._active or not self._world.cluster.exists:
            return
        rnd = Random(f"gaps of {self._world.seed} at {self._world.now}")
        if rnd.random() >= ACCEPTS:
            return
        if self._slow:
            self._world.say(self._slow.pop())
            return
        world = self._world
        view, bounds = world.promises.live.view(), HistoryControl(world.cluster).bounds(NAME, 0)
        start = view.log_start
        if start is None or start >= bounds.local_start:
            return
        missing = view.open_gaps(OffsetRange(start, Offset(bounds.local_start - 1)))
        if not missing:
            return
        offsets = rnd.choice(missing)
        try:
            require_gone(Gaps(view, bounds, tuple(missing)), offsets, world.store, ObjectKeys())
        except TierstateError:
            world.seen["gap refused"] += 1
            return
        fact = acceptance(view, offsets, "lost", world.clock, self._ids)
        self.lost |= {
            each.number for each in world.cluster.truth if each.base <= offsets.end and each.end > offsets.start
        }
        if rnd.random() < 0.3:
            self._slow.append(fact)
        else:
            world.say(fact)
