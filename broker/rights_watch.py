"""Watches whether Kafka accepts an agent's login and grants its rights. An agent can only wait for both."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from ..runtime.watchdog import go_round
from ..state.errors import TierstateError
from .acls import Lacking
from .kafka_access import KafkaAccess
from .raw import RawClient

LOOK_S = 30.0
AGAIN_S = 5.0
"""Seconds between checks while a right is missing or a login is refused."""


class RightsWatch:
    """``ask`` returns the missing rights (`acls.lacking`). ``raw`` logs in. Reading the results never blocks.

    ``returned`` is called when the last missing right is granted, and when refused logins are accepted again."""

    def __init__(self, ask: Callable[[], Sequence[Lacking]], kafka: KafkaAccess, raw: RawClient) -> None:
        self._ask, self._kafka, self._raw = ask, kafka, raw
        self.lacking: tuple[Lacking, ...] = ()
        self._refusals = 0
        self.returned: Callable[[], None] = lambda: None

    def told(self, topic: str | None = None) -> list[str]:
        """Return one sentence for each missing right. ``topic``: leave out the rights on other topics."""
        return [each.told(self._kafka) for each in self.lacking if topic is None or each.concerns(topic)]

    @property
    def refused(self) -> list[str]:
        """Return one sentence for each broker that refuses the login."""
        return self._kafka.logins.troubles()

    def run(self, stop: threading.Event) -> None:
        """Check repeatedly until ``stop`` is set."""
        go_round("rights watch", stop, self.look, lambda: AGAIN_S if self.lacking or self.refused else LOOK_S)

    def look(self) -> None:
        """Check once. If no broker answers, the last known rights are kept."""
        self._raw.log_in(everywhere=True)
        if self.refused:
            return  # no broker would answer
        if self._kafka.logins.count != self._refusals:
            self._refusals = self._kafka.logins.count
            self.returned()
        try:
            missing = self._ask()
        except TierstateError:
            return
        before, self.lacking = self.lacking, tuple(missing)
        if before and not self.lacking:
            self.returned()
