"""The place of a table: which offsets of each partition it has. Each commit writes it into its snapshot's summary.

tierstate.offsets   {"0": 1200}                 the rows of partition 0 end at this offset, exclusive
tierstate.starts    {"0": 0}                    and begin here: lower records were deleted, or never followed
tierstate.epochs    {"0": [[3, 0], [5, 900]]}   the newest leader epochs of its rows, and the start of each
tierstate.versions  {"0": [[0, 0], [1, 700]]}   version N (tierstate.columns.N) of the columns, and its first offset
tierstate.seen      {"0": [1764435600000, 86400000, 0]}   of a compacted topic: see `Seen`
tierstate.topic-id  x2Qk…                       the topic's id: another topic may have the same name
tierstate.attempt   4f…                         the attempt that made the snapshot

The same commit writes the place into a property of the table, tierstate.place, with the snapshot's sequence number and
the table's number of rows. The property is read only if another tool expired every snapshot with a place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from ..state.epochs import EpochEntry, LeaderEpoch, Lineage
from ..state.errors import CorruptData, InvalidRequest
from ..state.ids import TopicId
from ..state.offsets import Offset, OffsetRange, TimestampMs

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

OFFSETS, STARTS, EPOCHS = "tierstate.offsets", "tierstate.starts", "tierstate.epochs"
VERSIONS, TOPIC_ID, ATTEMPT = "tierstate.versions", "tierstate.topic-id", "tierstate.attempt"
SEEN = "tierstate.seen"
PLACE, ROWS = "tierstate.place", "total-records"

EMPTY = Lineage()
KEPT_EPOCHS = 8
"""The newest epochs that each commit repeats per partition. A branch lost further down stops the table."""


class Seen(NamedTuple):
    """``at``: when the rows of a compacted topic's partition were all that there was, and ``keep_ms``: how long the
    cleaner kept tombstones then. ``folding``: the rows are not all yet, and their fold began at this time.
    """

    at: TimestampMs
    keep_ms: int
    folding: bool = False


class VersionStart(NamedTuple):
    """Rows from this offset up to the next start were written by this version of the columns."""

    version: int
    start: Offset


class Written(NamedTuple):
    """The offsets ``[start, end)``, whose rows this version of the columns wrote."""

    version: int
    start: Offset
    end: Offset


@dataclass(frozen=True, slots=True)
class Reach:
    """The rows ``[start, end)`` of one partition. ``lineage``: their leader epochs, as far down as they are known.
    ``versions``: the versions of the columns that wrote them, ascending. ``seen``: only for a compacted topic.
    """

    start: Offset
    end: Offset
    lineage: Lineage = EMPTY
    versions: tuple[VersionStart, ...] = ()
    seen: Seen | None = None

    def to(self, end: Offset, log: Lineage, version: int) -> Reach:
        """Return the reach extended to ``end``. New rows have the lineage ``log``, and ``version`` wrote them."""
        entries = {entry.epoch: entry for entry in _within(log, self.end, end)}
        if self.end > self.start:  # an epoch that continues keeps its start
            entries.update({entry.epoch: entry for entry in self.lineage.entries})
        versions = self.versions
        if end > self.end and (not versions or versions[-1].version != version):
            versions = (*versions, VersionStart(version, self.end))
        lineage = Lineage(tuple(sorted(entries.values())[-KEPT_EPOCHS:]))
        return replace(self, end=end, lineage=lineage, versions=versions)

    def cut(self, end: Offset) -> Reach:
        """Return the reach without the rows from ``end`` on."""
        remaining = tuple(entry for entry in self.lineage.entries if entry.start_offset < end)
        versions = tuple(each for each in self.versions if each.start < end)
        return replace(self, end=end, lineage=Lineage(remaining), versions=versions)

    def from_(self, start: Offset) -> Reach:
        """Return the reach without the rows below ``start``."""
        end = max(self.end, start)
        return replace(self, start=start, end=end, lineage=Lineage(_within(self.lineage, start, end)))

    def missing(self, end: Offset) -> Reach:
        """Return the reach extended to ``end`` over offsets whose records no longer exist."""
        return replace(self, end=end)

    def written(self, start: Offset, end: Offset) -> list[Written]:
        """Return which version wrote which of these offsets. An archive missed the offsets below the first version."""
        ends = [each.start for each in self.versions[1:]] + [self.end]
        parts = [
            Written(each.version, max(each.start, start), min(until, end))
            for each, until in zip(self.versions, ends, strict=False)
        ]
        return [each for each in parts if each.start < each.end]


def common_end(reach: Reach, log: Lineage, log_start: Offset) -> Offset:
    """Return the exclusive end of the rows that equal the log. It is below ``reach.end`` if the log lost a branch.

    An epoch has one leader. So an offset that rows and log have under one epoch is the same record, and so are all
    below it (decision 0016). Offsets that the log deleted count as equal. Raises InvalidRequest if the end cannot be
    known.
    """
    lowest = max(reach.start, log_start)
    if not reach.lineage.entries or log.first_offset is None or reach.end <= max(lowest, log.first_offset):
        return reach.end
    ends = [entry.start_offset for entry in reach.lineage.entries[1:]] + [reach.end]
    for entry, end in reversed(list(zip(reach.lineage.entries, ends, strict=True))):
        owned = log.owned_by(entry.epoch)
        if owned is None:
            continue
        shared = end if owned[1] is None else min(end, owned[1])
        if shared > max(owned[0], entry.start_offset):
            return shared
    if max(reach.lineage.entries[0].start_offset, log.first_offset) <= lowest:
        return lowest  # no row equals a record that the log still has
    raise InvalidRequest(
        "the log left the branch that this table follows further down than the table knows its leader epochs; "
        "drop the table and create it again",
        known_from=reach.lineage.entries[0].start_offset,
        end=reach.end,
    )


@dataclass(frozen=True, slots=True)
class TablePlace:
    """The reach of each partition. A partition without a reach has no row yet."""

    partitions: Mapping[int, Reach]

    def with_(self, changed: Mapping[int, Reach]) -> TablePlace:
        return TablePlace({**self.partitions, **changed})

    def as_summary(self, topic_id: TopicId, attempt: str) -> dict[str, str]:
        reaches = sorted(self.partitions.items())
        epochs = {
            number: [[entry.epoch, entry.start_offset] for entry in reach.lineage.entries] for number, reach in reaches
        }
        versions = {number: [[each.version, each.start] for each in reach.versions] for number, reach in reaches}
        seen = {number: [*map(int, reach.seen)] for number, reach in reaches if reach.seen is not None}
        return {
            **({SEEN: _said(seen)} if seen else {}),
            OFFSETS: _said({number: reach.end for number, reach in reaches}),
            STARTS: _said({number: reach.start for number, reach in reaches}),
            EPOCHS: _said(epochs),
            VERSIONS: _said(versions),
            TOPIC_ID: str(topic_id),
            ATTEMPT: attempt,
        }

    @classmethod
    def of_summary(cls, summary: Mapping[str, str], topic_id: TopicId) -> TablePlace:
        """Parse a place. Raises CorruptData if it is not a valid place, or belongs to another topic."""
        if summary.get(TOPIC_ID) != str(topic_id):
            raise CorruptData(
                "a snapshot of this table is of another topic", topic_id=summary.get(TOPIC_ID), expected=topic_id
            )
        try:
            offsets, starts, epochs, versions = (
                json.loads(summary[name]) for name in (OFFSETS, STARTS, EPOCHS, VERSIONS)
            )
            seen = json.loads(summary.get(SEEN, "{}"))
            reaches = {
                int(number): Reach(
                    Offset(int(starts[number])),
                    Offset(int(end)),
                    Lineage(tuple(EpochEntry(LeaderEpoch(epoch), Offset(at)) for epoch, at in epochs[number])),
                    tuple(VersionStart(int(version), Offset(int(at))) for version, at in versions[number]),
                    _seen(seen.get(number)),
                )
                for number, end in offsets.items()
            }
        except (KeyError, TypeError, ValueError, AttributeError, InvalidRequest) as error:
            raise CorruptData("a snapshot's summary does not say a place", reason=repr(error)) from error
        return cls(reaches)


def summary_of(snapshot: Snapshot) -> dict[str, str]:
    """Return the properties of a snapshot's summary."""
    return {} if snapshot.summary is None else snapshot.summary.additional_properties


def place_property(snapshot: Snapshot) -> dict[str, str]:
    """Return the property that repeats the place of a new snapshot."""
    summary = summary_of(snapshot)
    names = (OFFSETS, STARTS, EPOCHS, VERSIONS, TOPIC_ID, ROWS, SEEN)
    place = {name: summary[name] for name in names if name in summary}
    return {PLACE: _said({"sequence": snapshot.sequence_number, **place})}


def place_kept(properties: Mapping[str, str], topic_id: TopicId, now: Snapshot | None = None) -> TablePlace | None:
    """Return the place that the table's property has. Returns None if it has no valid place for this topic.

    ``now``: the current snapshot. With it, the place is returned only if this snapshot is not older than the place and
    has as many rows. Then it has the same rows in other files, as far as metadata can show.
    """
    try:
        properties_place = json.loads(properties[PLACE])
        place = TablePlace.of_summary(properties_place, topic_id)
        if now is not None:
            rows = summary_of(now).get(ROWS)
            if rows != properties_place[ROWS] or (now.sequence_number or 0) < properties_place["sequence"]:
                return None
    except (KeyError, TypeError, ValueError, CorruptData):
        return None
    return place


def _within(lineage: Lineage, start: Offset, end: Offset) -> tuple[EpochEntry, ...]:
    if start >= end:
        return ()
    return lineage.within(OffsetRange(start, Offset(end - 1))).entries


def _seen(value: object) -> Seen | None:
    """Parse a `Seen`. Returns None without one, and for the time alone that an earlier version wrote."""
    if not isinstance(value, list):
        return None
    at, keep_ms, folding = value
    return Seen(TimestampMs(at), keep_ms, bool(folding))


def _said(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
