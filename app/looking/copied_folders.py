"""Detect a copy or a snapshot in place of the broker's log folders: in a copy, an agent never finds anything to do.

A broker locks its folders before it answers any client, and unlocks them after its last answer. So if a broker answers
between two checks that find no locks, it has other folders than these. Locks are not visible everywhere, and the broker
of a clone may have locked these folders. So the ends of a few logs are compared with the broker's answer, too.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from heapq import nlargest
from itertools import islice
from pathlib import Path

from ...broker.answers import Place
from ...broker.control import BrokerControl
from ...log.local_log import LogDirs
from ...log.partition import open_partition
from ...log.segment import LogSegment
from ...runtime.watchdog import go_round
from ...state.errors import InvalidRequest, TierstateError
from ...state.offsets import Offset
from ...state.routing import LocalBounds

LOOK_S = 60.0
LOOKS_PER_COMPARISON = 60
COMPARED = 8
"""The number of partitions whose ends are compared: those with the highest offsets, because these grow."""


class FolderWatch:
    """Checks each minute whether a copy has taken the place of the log folders. Reading `problem` never waits."""

    def __init__(self, log: LogDirs, broker: BrokerControl) -> None:
        self._log, self._broker = log, broker
        self._looks = 0
        self.problem: str | None = None

    @property
    def lost(self) -> Mapping[Path, str]:
        """Return the log folders that the broker gave up, with the reason."""
        return self._log.broker_folders.lost

    def run(self, stop: threading.Event) -> None:
        go_round("folder watch", stop, self.look, lambda: LOOK_S)

    def look(self) -> None:
        """Check once and set `problem`, which stays as it is if the broker or the disk does not answer."""
        self._looks += 1
        try:
            require_own_locks(self._log, self._broker)
            if self.problem or self._looks % LOOKS_PER_COMPARISON == 0:
                require_same_ends(self._log, self._broker)
        except InvalidRequest as error:
            self.problem = str(error)
        except TierstateError:
            return
        else:
            self.problem = None


def require_own_folders(log: LogDirs, broker: BrokerControl) -> None:
    """Raise InvalidRequest for folders of another cluster, and for a copy of the broker's folders."""
    require_own_locks(log, broker)
    require_same_ends(log, broker)


def require_own_locks(log: LogDirs, broker: BrokerControl) -> None:
    """Raise InvalidRequest for folders of another cluster, and if their broker answers but has locked none."""
    answering = broker.cluster().cluster_id
    if log.cluster_id != answering:
        raise InvalidRequest(
            "the log folders belong to another cluster",
            log_dirs=",".join(map(str, log.broker_folders.folders)),
            cluster_id=log.cluster_id,
            answering=answering,
        )
    if not log.broker_folders.unserved or not _bounds(broker, log, islice(_led(broker, log), 1)):
        return
    log.broker_folders.look()
    if log.broker_folders.unserved:
        raise _copied("the broker answers and has locked none of these folders", log)


def require_same_ends(log: LogDirs, broker: BrokerControl) -> None:
    """Raise InvalidRequest if a log on the disk ends before the high watermark that the broker reported earlier.

    Checks twice, because an unclean election may truncate a log between the broker's answer and the check.
    """
    bounds = _bounds(broker, log, _led(broker, log))
    looked_at = nlargest(COMPARED, bounds, key=lambda each: bounds[each].high_watermark)
    behind = [each for each in looked_at if _ends_before(log, *each, bounds[each].high_watermark)]
    again = _bounds(broker, log, behind)
    for (topic, partition), now in again.items():
        if _ends_before(log, topic, partition, now.high_watermark):
            raise _copied(
                f"the broker has offsets up to {now.high_watermark} of {topic}:{partition}, and these folders have not",
                log,
            )


def _led(broker: BrokerControl, log: LogDirs) -> Iterator[Place]:
    """Yield the partitions that the broker of these folders leads."""
    for topic in broker.topics():
        yield from ((topic.name, each.partition) for each in topic.partitions if each.leader == log.node_id)


def _bounds(broker: BrokerControl, log: LogDirs, places: Iterable[Place]) -> dict[Place, LocalBounds]:
    """Return bounds from this broker: others may name it as leader for seconds after its end. Omits failed ones."""
    answers = broker.bounds_of(list(places), broker=log.node_id)
    return {place: each for place, each in answers.items() if not isinstance(each, TierstateError)}


def _ends_before(log: LogDirs, topic: str, partition: int, offset: Offset) -> bool:
    """Return whether the log ends before ``offset``. False also if it is missing or unreadable: others report that."""
    for folder in log.broker_folders.live:
        try:
            local = open_partition(folder / f"{topic}-{partition}")
            return LogSegment(local.log_path(local.base_offsets[-1]), active=True).next_offset() < offset
        except (TierstateError, OSError):
            continue
    return False


def _copied(reason: str, log: LogDirs) -> InvalidRequest:
    return InvalidRequest(
        f"{reason}: they are a copy or a snapshot of its own; give agent.log_dirs the folders of log.dirs as the "
        "broker has them mounted",
        node_id=log.node_id,
        folders=",".join(map(str, log.broker_folders.folders)),
    )
