"""Reports of drills (`restore/drill.py`): one JSON object for each, next to the archive.

    _tierstate_drill/<cluster id>/<milliseconds>-good      every record that was restored is that of the bucket
    _tierstate_drill/<cluster id>/<milliseconds>-failed    a difference, or an error

The cluster is the one in which the records were written. This file alone creates and parses these keys. A listing shows
when a drill last succeeded, so an agent reads no report.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ...follower.object_names import DRILLS
from ...runtime.metrics import Metrics, Sample
from ...state.offsets import TimestampMs
from ...storage.object_store import ObjectReader, ObjectStore

_NAME = re.compile("([0-9]{15})-(good|failed)")


class Drill(NamedTuple):
    """One drill. ``at``: when it began."""

    at: TimestampMs
    good: bool


def drills_prefix(cluster_id: str) -> str:
    return f"{DRILLS}{cluster_id}/"


def report_key(cluster_id: str, drill: Drill) -> str:
    return f"{drills_prefix(cluster_id)}{drill.at:015d}-{'good' if drill.good else 'failed'}"


def put_report(store: ObjectStore, key: str, document: Mapping[str, Any]) -> None:
    """Put the report. Raises ObjectExists if another drill began in the same millisecond."""
    store.put_if_absent(key, (json.dumps(document, indent=1) + "\n").encode())


def drills(store: ObjectReader, cluster_id: str) -> list[Drill]:
    """Return all drills whose report the bucket has, in ascending order."""
    prefix = drills_prefix(cluster_id)
    names = (_NAME.fullmatch(each.key, len(prefix)) for each in store.list(prefix))
    return sorted(Drill(TimestampMs(int(name[1])), name[2] == "good") for name in names if name)


class DrillWatch:
    """Has the results of the newest drills as of the last `look`. Thread-safe."""

    def __init__(self, store: ObjectReader, cluster_id: str) -> None:
        self._store, self._cluster_id = store, cluster_id
        self._newest: Drill | None = None
        self._good: Drill | None = None

    def look(self) -> None:
        """List the reports. Raises the store's errors."""
        known = drills(self._store, self._cluster_id)
        self._newest = known[-1] if known else None
        self._good = next((each for each in reversed(known) if each.good), None)

    def leave(self) -> None:
        """Forget the drills, because another agent reports them now."""
        self._newest = self._good = None

    def feed(self, metrics: Metrics) -> None:
        """Add the gauges. They have no value before the first drill."""

        def last_success() -> Iterable[Sample]:
            if self._newest is not None:
                yield (), 0 if self._good is None else self._good.at / 1000

        def failed() -> Iterable[Sample]:
            if self._newest is not None:
                yield (), not self._newest.good

        metrics.gauge("tierstate_drill_last_success_timestamp_seconds", last_success)
        metrics.gauge("tierstate_drill_failed", failed)
