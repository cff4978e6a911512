"""A copy or a snapshot of the broker's log folders in their place: an agent would find nothing to do, for ever.

A broker locks its folders before it answers anybody, and lets go of them after its last answer. So a broker that
answers, between two looks at locks that nobody has, has other folders than these.
"""

from __future__ import annotations

import threading
from itertools import islice

from ..broker.control import BrokerControl
from ..log.local_log import LogDirs
from ..runtime.watchdog import go_round
from ..state.errors import InvalidRequest, TierstateError
from ..state.ids import BrokerId

LOOK_S = 60.0


class FolderWatch:
    """Looks each minute whether a copy has taken the place of the log folders. Reading `problem` never waits."""

    def __init__(self, log: LogDirs, broker: BrokerControl) -> None:
        self._log, self._broker = log, broker
        self.problem: str | None = None

    def run(self, stop: threading.Event) -> None:
        """Look until ``stop``."""
        go_round("folder watch", stop, self.look, lambda: LOOK_S)

    def look(self) -> None:
        """Look once. The problem stays while the broker or the disk does not answer."""
        try:
            require_own_folders(self._log, self._broker)
        except InvalidRequest as error:
            self.problem = str(error)
        except TierstateError:
            return
        else:
            self.problem = None


def require_own_folders(log: LogDirs, broker: BrokerControl) -> None:
    """Raises InvalidRequest for folders of another cluster, or where their broker answers and has locked none."""
    answering = broker.cluster().cluster_id
    if log.cluster_id != answering:
        raise InvalidRequest(
            "the log folders belong to another cluster",
            log_dirs=",".join(map(str, log.broker_folders.folders)),
            cluster_id=log.cluster_id,
            answering=answering,
        )
    if not log.broker_folders.unserved or not _answers(broker, log.node_id):
        return
    log.broker_folders.look()
    if log.broker_folders.unserved:
        raise InvalidRequest(
            "the broker answers and has locked none of these folders: they are a copy or a snapshot of its own; give "
            "agent.log_dirs the folders of log.dirs as the broker has them mounted",
            node_id=log.node_id,
            folders=",".join(map(str, log.broker_folders.folders)),
        )


def _answers(broker: BrokerControl, node: BrokerId) -> bool:
    """Whether this broker itself answers now: others may name it for some seconds after its end."""
    led = ((each.name, part.partition) for each in broker.topics() for part in each.partitions if part.leader == node)
    answers = broker.bounds_of(list(islice(led, 1)), broker=node).values()
    return any(not isinstance(each, TierstateError) for each in answers)
