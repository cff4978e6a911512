"""Does Kafka still allow what an agent needs? Asked now and then; who lacks a right can do nothing but wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from ..runtime.watchdog import go_round
from ..state.errors import TierstateError
from .acls import Lacking

LOOK_S = 30.0
AGAIN_S = 5.0
"""While something lacks."""


class RightsWatch:
    """``ask``: see `acls.lacking`. ``kafka``: the settings of that name.

    ``returned``: called when nothing lacks any more. Reading never waits."""

    def __init__(self, ask: Callable[[], Sequence[Lacking]], kafka: Mapping[str, str]) -> None:
        self._ask, self._kafka = ask, kafka
        self.lacking: tuple[Lacking, ...] = ()
        self.returned: Callable[[], None] = lambda: None

    def told(self, topic: str | None = None) -> list[str]:
        """Return one sentence for each right that lacks, with the command. ``topic``: no rights on other topics."""
        return [each.told(self._kafka) for each in self.lacking if topic is None or each.concerns(topic)]

    def run(self, stop: threading.Event) -> None:
        """Until ``stop``."""
        go_round("rights watch", stop, self.look, lambda: AGAIN_S if self.lacking else LOOK_S)

    def look(self) -> None:
        """Ask once. A broker that does not answer takes no right away, and gives none."""
        try:
            found = self._ask()
        except TierstateError:
            return
        before, self.lacking = self.lacking, tuple(found)
        if before and not self.lacking:
            self.returned()
