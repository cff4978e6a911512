"""All errors of tierstate, grouped by what the caller must do.

    TierstateError
    ├── InvalidRequest          fix the call, the setting or the input
    │   ├── InvalidSettings     settings are wrong; lists all of them by dotted key
    │   ├── MissingExtra        an optional part is not installed; names the extra
    │   ├── UnknownTopic        no such topic or partition
    │   ├── NotTiered           the topic exists, but tierstate refuses or ignores it
    │   └── LineageTooLong      a log has more leader epochs above its log start than a fact can name
    ├── OffsetOutOfRange        seek; carries the valid range
    ├── Unavailable             retry later
    │   ├── ViewBehind          the tier view has not caught up with the tier-state topic
    │   ├── BrokerUnavailable   Kafka does not answer, or answered that it is moving
    │   ├── StorageUnavailable  the object store does not answer
    │   ├── StorageFull         the object store has no room
    │   ├── DiskFull            the local disk with the view (`state_dir`) has no room
    │   ├── Throttled           slow down
    │   ├── TimedOut            the deadline of this process passed
    │   ├── LineageUnconfirmed  the copied segments may not belong to the log of the leader
    │   ├── PositionLost        the view's position no longer exists in the tier-state topic: rebuild the view
    │   └── UnknownOutcome      an append may or may not have landed: never repeat it, begin a new term
    ├── AccessDenied            ask for permission
    ├── Fenced                  stop: another broker or term leads
    ├── ObjectNotFound          an object does not exist; the caller decides what this means
    ├── ObjectExists            put-if-absent met an object
    ├── SegmentExpired          the segment was deleted by an accepted fact while it was read
    ├── PlannedRangeLost        a pinned plan can no longer be read as planned
    ├── BatchTooLarge           read the batch as stored: decompressed, it is larger than its reader accepts
    ├── CorruptData             page a human: bytes are not what they must be
    │   ├── PrefixContested     page a human: another cluster writes below the same bucket prefix
    │   ├── OtherBytes          page a human: a chunk is not what was sent
    │   ├── Undecodable         page a human: Kafka serves a batch that readers of the remote tier refuse
    │   └── HistoryBroken       page a human: the tier-state topic differs from its archive or checkpoints
    ├── LogGap                  page a human: offsets that must exist are in no tier
    ├── IllegalTransition       page a human: two facts contradict each other
    ├── TierStateLost           page a human: facts are missing from the tier-state topic; `recover` restores them
    ├── UpgradeNeeded           upgrade this process: a later release wrote a fact that this one cannot read
    └── Difference              a comparison found a difference (exit code 1)

Messages end with their facts: ``segment is gone. partition=orders-3 segment_id=…``. HTTP status and exit code depend on
the class (`api/problems.py`, `cli/exit_codes.py`). `docs/http.md` prints the first line of each class's docstring.
"""

from __future__ import annotations

from collections.abc import Mapping


class TierstateError(Exception):
    """The base class. ``TierstateError("segment is gone", partition="orders-3")`` adds its facts after the message."""

    def __init__(self, message: str, **facts: object) -> None:
        self.message = message
        self.facts = {name: value for name, value in facts.items() if value is not None}
        super().__init__(message, self.facts)

    def __str__(self) -> str:
        return f"{self.message}. {shown(self.facts)}" if self.facts else self.message

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions with keyword facts cross process boundaries (Spark executors pickle them).
        return (_rebuilt, (type(self), self.message, self.facts, self.__dict__.copy()))


def apart(facts: Mapping[str, object]) -> dict[str, object]:
    """Return facts for programs: a partition that has a topic id is split into ``topic_id`` and partition number."""
    place = facts.get("partition")
    topic_id = getattr(place, "topic_id", None)
    return (
        dict(facts)
        if topic_id is None
        else {**facts, "partition": getattr(place, "partition", None), "topic_id": topic_id}
    )


def shown(facts: Mapping[str, object]) -> str:
    """Return facts for people, ``name=value …``. Topic and partition are joined as in Kafka: ``partition=orders-0``."""
    if "topic" in facts and "partition" in facts:
        facts = apart(facts)
        facts["partition"] = f"{facts.pop('topic')}-{facts['partition']}"
    return " ".join(f"{name}={value}" for name, value in facts.items())


def _rebuilt(kind: type[TierstateError], message: str, facts: dict[str, object], rest: dict[str, object]) -> object:
    error = kind.__new__(kind)
    TierstateError.__init__(error, message, **facts)
    error.__dict__.update(rest)
    return error


class InvalidRequest(TierstateError):
    """The call is wrong: the caller must change it."""


class InvalidSettings(InvalidRequest):
    """Settings are wrong; ``problems`` lists every one of them with its dotted key."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("settings are wrong:\n" + "\n".join(f"  {problem}" for problem in problems))
        self.problems = problems


class MissingExtra(InvalidRequest):
    """A part that needs an optional dependency was called without it."""

    def __init__(self, extra: str, needed_for: str) -> None:
        where = "of the wheel that `make wheel` builds: docs/install.md"
        super().__init__(f"{needed_for} needs the extra [{extra}] {where}")
        self.extra = extra


class UnknownTopic(InvalidRequest):
    """The topic or partition does not exist."""


class NotTiered(InvalidRequest):
    """The topic exists, but tierstate does not tier it; the message says why."""


class LineageTooLong(InvalidRequest):
    """A log has more leader epochs above its log start than a fact can name."""


class OffsetOutOfRange(TierstateError):
    """Seek. ``valid_start`` inclusive, ``valid_end`` exclusive (the high watermark or last stable offset)."""

    def __init__(self, message: str, *, valid_start: int, valid_end: int, **facts: object) -> None:
        super().__init__(message, **facts, valid_start=valid_start, valid_end=valid_end)
        self.valid_start = valid_start
        self.valid_end = valid_end


class Unavailable(TierstateError):
    """The same call may succeed later."""


class ViewBehind(Unavailable):
    """The tier view has not caught up with a recently captured end of the tier-state topic."""


class BrokerUnavailable(Unavailable):
    """Kafka does not answer, or says that leadership is moving."""


class StorageUnavailable(Unavailable):
    """The object store does not answer."""


class StorageFull(Unavailable):
    """The object store has no room left."""


class DiskFull(Unavailable):
    """A disk of our own has no room left: the one with the view (``state_dir``)."""


class Throttled(Unavailable):
    """The caller must send fewer requests."""


class TimedOut(Unavailable):
    """A deadline of this process passed."""


class LineageUnconfirmed(Unavailable):
    """The leader's epoch has no term, and the broker does not confirm that its log has what the view describes."""


class PositionLost(Unavailable):
    """The view's position in the tier-state topic is gone (truncated, deleted, re-created): rebuild the view."""


class UnknownOutcome(Unavailable):
    """An append to the tier-state topic may or may not have landed. Never repeated: the partition begins a new term."""


class AccessDenied(TierstateError):
    """The store or the broker refuses these credentials."""


class Fenced(TierstateError):
    """Stop acting on this partition: a higher term exists, or this broker does not lead."""


class ObjectNotFound(TierstateError):
    """An object is not in the store."""


UNNAMED_STORE = "unnamed_store"
"""A fact of an `ObjectNotFound`: a store of topics that has objects, and that the settings of this process lack."""


class ObjectExists(TierstateError):
    """A put-if-absent met an existing object."""


class SegmentExpired(TierstateError):
    """The segment was deleted by an accepted fact while it was being read."""


class PlannedRangeLost(TierstateError):
    """A range of a pinned plan can no longer be read as it was planned."""


class CorruptData(TierstateError):
    """Bytes are not what they must be; names file, position and reason."""


class OtherBytes(CorruptData):
    """A chunk is not what was sent, though each of its batches may be right by its own CRC."""


class BatchTooLarge(TierstateError):
    """A batch unpacks to more than its reader takes; names its first offset and how much is taken."""


class PrefixContested(CorruptData):
    """Page a human: another cluster, a copy of this one above all, writes below the same bucket prefix."""


class Undecodable(CorruptData):
    """Page a human: Kafka serves a batch that readers of the remote tier refuse. Its segment stays on the broker."""


class HistoryBroken(CorruptData):
    """Page a human: the tier-state topic went back and on in another way than its archive and checkpoints have it."""


class LogGap(TierstateError):
    """Offsets that must exist belong to no tier. ``start`` and ``end`` are inclusive."""

    def __init__(self, message: str, *, start: int, end: int, **facts: object) -> None:
        super().__init__(message, **facts, start=start, end=end)
        self.start = start
        self.end = end


class IllegalTransition(TierstateError):
    """Two accepted facts contradict each other."""


class TierStateLost(TierstateError):
    """Facts are missing from the tier-state topic, and no decision is safe. The message has `WAY_OUT`."""

    WAY_OUT = "stop every agent, then: tierstate recover (docs/operations.md#the-tier-state-topic-is-lost)"


class UpgradeNeeded(TierstateError):
    """A later release wrote a fact that the answer may depend on. Nothing is lost: upgrade this process."""


class Difference(TierstateError):
    """A comparison found a difference."""
