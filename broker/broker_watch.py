"""Does any broker answer?"""

from __future__ import annotations

import threading

from ..runtime.answer_watch import AnswerWatch
from ..runtime.clock import Clock
from ..runtime.watchdog import go_round
from .control import BrokerControl

PATIENCE_S = 8.0
"""Two brokers that are silent have their time, and the third answers (`raw.METADATA_SECONDS`)."""


class BrokerWatch(AnswerWatch):
    """One small Metadata request every two seconds, to whichever broker answers."""

    def __init__(self, control: BrokerControl, clock: Clock) -> None:
        super().__init__(control.cluster, "no broker answers.", clock, every_s=2.0, again_s=2.0, patience_s=PATIENCE_S)

    def run(self, stop: threading.Event) -> None:
        """Until ``stop``."""
        go_round("broker watch", stop, self.look, self.pause_s)
