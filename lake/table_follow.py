"""Follows a topic with a table: one commit after another, each computed from the table's place.

    the topic has another id            the table stops with an error
    rows of a branch that the log lost  are removed, in a commit of their own
    rows below the log start            are removed, unless the table is an archive
    tombstones may be missed            the rows are removed, and the log is read again (see `compacted`)
    another engine committed last       the place is committed again, so that engine's expiry of snapshots keeps it
    new records                         are appended
    new fields in a registered schema   are added to the columns first, in a commit of their own

Several followers may keep one table. If two commit at once, one commit fails, and its follower reads the place again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from pyiceberg.manifest import DataFile

from ..runtime.operation import Operation
from ..state.errors import InvalidRequest, TierstateError, ViewBehind
from ..state.offsets import Extent, Offset, TimestampMs
from .columns import ColumnsGrown
from .jobs import is_of_all
from .log import Keep, TopicLog, no_lease
from .table import Change, LakeTable
from .table_commit import Write, commit, require_settling, take_out, write_here
from .table_files import Attempt, give_back, nothing_left
from .table_place import Reach, Seen, TablePlace, common_end
from .table_upsert import upsert
from .tombstones import Tombstones

FILE_BYTES = 128 * 2**20
COMMIT_BYTES = 1024 * 2**20


class Step(StrEnum):
    """The result of a round."""

    NOTHING = "nothing"
    APPENDED = "appended"
    EXPIRED = "expired"
    """Rows that the log deleted were removed."""
    LOST_BRANCH = "lost branch"
    """Rows that the log lost were removed."""
    EVOLVED = "evolved"
    """Fields were added or types widened, as in the registry. The new records are read again. `TableLimits` bounds the
    evolutions in a row, because a schema that grows each time it is read would evolve forever.
    """
    RESTATED = "restated"
    """Another engine's snapshot was the newest, or the place of a compacted topic was old. The place was committed."""
    RACED = "raced"
    """Another writer committed first, or the log changed its lineage. The round changed nothing."""


@dataclass
class Round:
    """The result of a round. ``waiting``: partitions that cannot be read now, and why. ``missed``: how many offsets the
    log lost before they became rows. These are gaps that a person accepted and, in an archive, records deleted before
    they were read. ``corrupt``: how many of ``rows`` have a key or value that does not parse. If rows were removed,
    ``rows`` counts them, and ``rewritten`` counts the other rows of their files.
    """

    step: Step
    rows: int = 0
    rewritten: int = 0
    files: int = 0
    waiting: dict[int, TierstateError] = field(default_factory=dict)
    missed: int = 0
    corrupt: int = 0


@dataclass(frozen=True, slots=True)
class TableLimits:
    """Bytes of log in a file and in a commit. ``evolutions``: the maximum in a row, with no new row between them."""

    file_bytes: int = FILE_BYTES
    commit_bytes: int = COMMIT_BYTES
    evolutions: int = 100


@dataclass(frozen=True, slots=True)
class Means:
    """The functions of a round. ``keep`` protects records while they are read. ``write`` writes the files."""

    keep: Keep = no_lease
    write: Write = write_here


ALONE = Means()


@dataclass
class Look:
    """A comparison of the table with the log, by partition. ``waiting``: the error of a partition that cannot be read.
    ``lost``: the end (exclusive) of the rows that equal the log, if the log lost others. ``starts``: the log start.
    ``news``: the offsets to append. ``seen``: of a compacted topic, when its ends were read. ``old``: partitions that
    have all records, and whose place says it for too long. ``slow``: the errors of folds that took too long.
    """

    place: TablePlace
    waiting: dict[int, TierstateError] = field(default_factory=dict)
    lost: dict[int, Offset] = field(default_factory=dict)
    starts: dict[int, Offset] = field(default_factory=dict)
    news: dict[int, Extent] = field(default_factory=dict)
    seen: dict[int, Seen] = field(default_factory=dict)
    old: set[int] = field(default_factory=set)
    slow: list[TierstateError] = field(default_factory=list)
    number_of: Callable[[object, int], int | None] = lambda topic, partition: partition

    @property
    def lag(self) -> int:
        """Return the number of offsets to append."""
        return sum(end - start for start, end in self.news.values())

    def leave_out(self, waiting: Mapping[int, TierstateError]) -> None:
        """Append nothing of these partitions. ``waiting`` has the error of each partition."""
        for number, error in waiting.items():
            self.news.pop(number, None)
            self.waiting[number] = error

    def at_fault(self, error: TierstateError) -> int | None:
        """Return the partition that could not be read, or None if the error concerns more than one partition."""
        place = error.facts.get("partition")
        number = getattr(place, "partition", place)
        number = self.number_of(error.facts.get("topic"), number) if isinstance(number, int) else None
        return number if isinstance(number, int) and number in self.news and not is_of_all(error) else None


def follow_round(
    table: LakeTable, log: TopicLog, look: Look, attempt_id: str, limits: TableLimits, means: Means = ALONE
) -> Operation[Round]:
    """Make at most one commit. ``look`` is for the table as it was loaded. Raises errors of reading and writing."""
    attempt, reaches = Attempt(attempt_id), look.place.partitions
    if look.lost:
        step = Step.LOST_BRANCH
        ranges = {number: Extent(end, reaches[number].end) for number, end in look.lost.items()}
        left = {number: reaches[number].cut(end) for number, end in look.lost.items()}
    elif expired := below(table, look):
        step = Step.EXPIRED
        ranges = {number: Extent(reach.start, min(reach.end, look.starts[number])) for number, reach in expired.items()}
        left = {number: reach.from_(look.starts[number]) for number, reach in expired.items()}
    elif table.is_place_covered or (look.old and not look.news):
        landed = yield from commit(table, attempt, Change(look.place))
        return _round(Step.RESTATED if landed else Step.RACED, attempt, look)
    elif look.news:
        return (yield from _append(table, log, attempt, look, limits, means))
    else:
        return Round(Step.NOTHING, waiting=look.waiting)
    landed = yield from take_out(table, attempt, look.place.with_(left), ranges)
    if landed and look.slow:  # the next round begins a new fold
        raise look.slow[0]
    return _round(step if landed else Step.RACED, attempt, look)


def _append(
    table: LakeTable, log: TopicLog, attempt: Attempt, look: Look, limits: TableLimits, means: Means
) -> Operation[Round]:
    """Append new records and set the new place, or evolve the columns if a record needs new fields."""
    means.keep(look.news)
    upserts = bool(table.facts.upsert)
    bytes_each = limits.commit_bytes // len(look.news)
    share = 1 if upserts else max(1, bytes_each // limits.file_bytes)
    split_bytes = max(limits.file_bytes, bytes_each) if upserts else limits.file_bytes
    lineages = {number: log.lineage(number) for number in look.news}
    splits, reaches, missed = {}, {}, 0
    for number, (start, end) in look.news.items():
        parts = log.planned(number, Extent(start, end)).splits(split_bytes)[:share]
        if parts:  # without parts, a person accepted the whole range as lost
            splits[number], end = parts, parts[-1].end
        before = look.place.partitions.get(number, Reach(start, start))
        missed += end - before.end - sum(each.end - each.start for each in parts)
        reach = before.missing(start).to(end, lineages[number], table.facts.version)
        reaches[number] = replace(reach, seen=look.seen.get(number)) if end == look.news[number].end else reach
    drop: list[DataFile] = []
    try:
        with nothing_left(table, attempt):
            if upserts:
                drop = yield from upsert(table, log, attempt, splits)
            else:
                yield from means.write(table, log, attempt, splits)
            if any(log.lineage(number) != lineages[number] or _lacks(log, look, number) for number in splits):
                yield from give_back(table, attempt)
                return _round(Step.RACED, attempt, look)
    except ColumnsGrown as grown:
        require_settling(table, look.place, limits.evolutions)
        landed = yield from commit(table, attempt, Change(look.place, columns=grown.columns))
        return _round(Step.EVOLVED if landed else Step.RACED, attempt, look)
    landed = yield from commit(table, attempt, Change(look.place.with_(reaches), tuple(attempt.files), drop))
    return _round(Step.APPENDED if landed else Step.RACED, attempt, look, missed if landed else 0)


def look_at(table: LakeTable, log: TopicLog) -> Look:
    """Return the comparison of the table with the log. The table must have just been loaded or refreshed.

    A partition that cannot be compared is in `Look.waiting`. Raises InvalidRequest and CorruptData if the table cannot
    continue, and Unavailable if Kafka or the store is unavailable.
    """
    facts = table.facts
    if (topic_id := log.topic_id()) != facts.topic_id:
        raise InvalidRequest(
            "the topic was made anew, and the rows of this table are the old one's; create another table for it",
            table=table.name,
            topic=facts.topic,
            followed=facts.topic_id,
            found=topic_id,
        )
    look = Look(table.place(), number_of=log.number_of)
    for number in log.numbers():
        try:
            _look_at(look, log, number, upserts=bool(facts.upsert))
            if log.tombstones is not None:
                _look_for_tombstones(look, log.topic, log.tombstones, number)
        except TierstateError as error:
            if is_of_all(error) and not isinstance(error, ViewBehind):
                raise
            look.waiting[number] = error
    return look


def require_tiered(table: LakeTable, log: TopicLog) -> None:
    """Raise InvalidRequest if the tier-state topic never had a fact of the topic."""
    if not log.is_tiered() and log.topic_id() == table.facts.topic_id:
        raise InvalidRequest(
            "the topic is not tiered: no agent has copied or reported anything of it, so there is nothing to follow",
            table=table.name,
            topic=table.facts.topic,
        )


def _look_at(look: Look, log: TopicLog, number: int, *, upserts: bool) -> None:
    if log.tombstones is not None:
        look.seen[number] = log.tombstones.now()  # before the end is read: what comes later is younger
    start, end = log.extent(number)
    lineage = log.lineage(number)
    if lineage.last_epoch is None:
        return  # no fact names the partition: nothing was copied
    look.starts[number] = start
    reach = look.place.partitions.get(number)
    if reach is None:
        if end > start:
            look.news[number] = Extent(start, end)
        return
    last_epoch = reach.lineage.last_epoch
    if last_epoch is not None and last_epoch > lineage.last_epoch:
        # another follower has a newer view: rows that seem lost may be of an epoch that this view does not have yet
        raise ViewBehind("the table has rows of a later leader epoch than this view knows", partition=number)
    if (shared := common_end(reach, lineage, start)) < reach.end:
        # rows that a lost record replaced are no longer in the table: an upsert begins again where the log does
        look.lost[number] = Offset(max(reach.start, start)) if upserts else shared
        return
    begin = max(reach.end, start)
    if end > begin:
        look.news[number] = Extent(begin, end)


def _look_for_tombstones(look: Look, topic: str, tombstones: Tombstones, number: int) -> None:
    """Remove the rows of a partition that may lack a deletion, or note that nothing follows them yet."""
    reach = look.place.partitions.get(number)
    if reach is None and number in look.news:
        reach = Reach(look.news[number].start, look.news[number].start)
    if reach is None or number in look.lost or number not in look.starts:
        return
    if reach.start == reach.end:  # no row can lack a deletion
        look.place = look.place.with_({number: replace(reach, seen=look.seen[number]._replace(folding=True))})
    elif tombstones.may_lack(reach.seen):
        look.lost[number] = reach.start
        if reach.seen is not None and reach.seen.folding:
            look.slow.append(tombstones.too_slow(topic, number, reach.seen))
    elif number not in look.news:
        if tombstones.is_old(reach.seen):
            look.old.add(number)
        look.place = look.place.with_({number: replace(reach, seen=look.seen[number])})


def _lacks(log: TopicLog, look: Look, number: int) -> bool:
    """Return whether a tombstone that these rows need may have been removed while the log was read."""
    if log.tombstones is None:
        return False
    reach = look.place.partitions[number]
    lacks = log.tombstones.may_lack(reach.seen)
    if lacks and reach.seen is not None and reach.seen.folding:
        raise log.tombstones.too_slow(log.topic, number, reach.seen)
    return lacks


def behind_since(look: Look, log: TopicLog) -> TimestampMs | None:
    """Return when the oldest record that the table lacks was copied. None if it lacks none, or if that is unknown."""
    times = (log.copied_at(number, extent.start) for number, extent in look.news.items())
    return min((each for each in times if each is not None), default=None)


def below(table: LakeTable, look: Look) -> dict[int, Reach]:
    """Return the partitions with rows below the log start. The result is empty for an archive, which keeps them."""
    if table.facts.keep:
        return {}
    return {
        number: reach
        for number, reach in look.place.partitions.items()
        if (start := look.starts.get(number)) is not None and reach.start < start
    }


def _round(step: Step, attempt: Attempt, look: Look, missed: int = 0) -> Round:
    rows, rewritten = attempt.rows - attempt.kept, attempt.kept
    if attempt.dropped:
        rows, rewritten = attempt.dropped - attempt.rows, attempt.rows
    return Round(step, rows, rewritten, len(attempt.files), look.waiting, missed, attempt.corrupt)
