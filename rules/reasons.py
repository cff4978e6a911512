"""Reasons why something is not done. Each has a kind that can be counted, and a sentence with numbers.

The kinds are stable names: metrics use them as labels, and `docs/reasons.md` is generated from `MEANINGS`. Each kind is
produced on a real broker by `tests/scenarios/test_reasons.py`, except those that need thousands of elections.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from ..state import errors
from ..state.errors import TierstateError


class Reason(StrEnum):
    """The kinds of reasons, with their stable names."""

    ALL_COPIED = "all-copied"
    OPEN_TRANSACTION = "open-transaction"
    NOT_REPLICATED = "not-replicated"
    COPY_LAG = "copy-lag"
    NO_EPOCH = "no-epoch"
    NO_LOCAL_SEGMENT = "no-local-segment"

    ONLY_ACTIVE = "only-active"
    LOCAL_RETENTION = "local-retention"
    NOT_COPIED = "not-copied"
    TRIM_DELAY = "trim-delay"
    GROUP_HOLDS = "group-holds"
    GROUPS_UNKNOWN = "groups-unknown"
    UNCLEAN_ELECTIONS = "unclean-elections"
    OBJECTS_MISSING = "objects-missing"
    TRIM_DISABLED = "trim-disabled"

    NOTHING_REMOTE = "nothing-remote"
    RETENTION_KEEPS = "retention-keeps"
    ORDER_WAITS = "order-waits"
    ORDER_LOST = "order-lost"
    READERS_GRACE = "readers-grace"
    LATE_WRITES = "late-writes"
    LEASED = "leased"
    NOT_ARCHIVED = "not-archived"
    REMOVAL_FAILED = "removal-failed"

    PAUSED = "paused"
    DISABLED = "disabled"
    EXCLUDED = "excluded"
    REFUSED_COMPACTED = "refused-compacted"
    REFUSED_KAFKA_TIERED = "refused-kafka-tiered"
    REFUSED_INTERNAL = "refused-internal"
    REFUSED_FORMAT = "refused-format"

    DEGRADED = "degraded"
    HELD = "held"
    CONTRADICTION = "contradiction"
    LINEAGE_UNKNOWN = "lineage-unknown"
    LINEAGE_TOO_LONG = "lineage-too-long"
    NO_LOG_START = "no-log-start"
    CLOCKS_DISAGREE = "clocks-disagree"
    TIER_STATE_UNSAFE = "tier-state-unsafe"
    PREFIX_CONTESTED = "prefix-contested"
    PREFIX_UNPROVEN = "prefix-unproven"
    PREFIX_ON_TRIAL = "prefix-on-trial"
    TIER_STATE_LOST = "tier-state-lost"

    UNDECODABLE = "undecodable"
    CORRUPT_DATA = "corrupt-data"
    STORE_AWAY = "store-away"
    STORE_FULL = "store-full"
    TIER_STATE_AWAY = "tier-state-away"
    BROKER_AWAY = "broker-away"
    ACCESS_DENIED = "access-denied"
    FENCED = "fenced"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Why:
    """A reason: one sentence with numbers (offsets, bytes, seconds, names) and, if not obvious, what would end it."""

    kind: Reason
    text: str

    def __str__(self) -> str:
        return self.text


_FAILURES: tuple[tuple[tuple[type[TierstateError], ...], Reason], ...] = (
    ((errors.Undecodable,), Reason.UNDECODABLE),
    ((errors.CorruptData, errors.ObjectNotFound), Reason.CORRUPT_DATA),
    ((errors.StorageUnavailable, errors.Throttled), Reason.STORE_AWAY),
    ((errors.StorageFull,), Reason.STORE_FULL),
    ((errors.ViewBehind, errors.PositionLost, errors.UnknownOutcome, errors.DiskFull), Reason.TIER_STATE_AWAY),
    ((errors.BrokerUnavailable,), Reason.BROKER_AWAY),
    ((errors.AccessDenied,), Reason.ACCESS_DENIED),
    ((errors.LineageTooLong,), Reason.LINEAGE_TOO_LONG),
    ((errors.Fenced,), Reason.FENCED),
    ((errors.TierStateLost,), Reason.TIER_STATE_LOST),
    ((errors.UpgradeNeeded,), Reason.DEGRADED),
)


def why_failed(error: TierstateError, times: int = 1, *, reading_tiers: bool = False) -> Why:
    """Return the reason for an error. ``times``: the number of failures in a row.

    ``reading_tiers``: the request read the tier-state topic, which may be unavailable while the broker answers.
    """
    kind = next((kind for kinds, kind in _FAILURES if isinstance(error, kinds)), Reason.FAILED)
    if (reading_tiers or "tier_partition" in error.facts) and kind in (Reason.BROKER_AWAY, Reason.FAILED):
        kind = Reason.TIER_STATE_AWAY
    return Why(kind, f"{error}" if times < 2 else f"{error} (failed {times} times in a row)")


_UNITS = (("d", 86_400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1), ("s", 1, "", 1))


def lasting(ms: float) -> str:
    """Return a duration for people: ``7 d``, ``4 h 50 m``, ``40 s``. It has at most two units, and is rounded up to
    whole seconds: a remaining time is never shown as 0 s.
    """
    total = -int(-ms // 1000)
    large, size, small, part = next(each for each in _UNITS if total >= each[1] or each[1] == 1)
    rest = total % size // part
    return f"{total // size} {large}" + (f" {rest} {small}" if rest else "")


def about_size(size: int) -> str:
    """Return a size in bytes for people: ``1.5 GiB``, ``12 B``."""
    power = next((power for power in (4, 3, 2, 1) if size >= 1024**power), 0)
    return f"{size / 1024**power:.1f} {' KMGT'[power]}iB" if power else f"{size} B"


@dataclass(frozen=True, slots=True)
class Meaning:
    """The documentation of a reason. ``acts``: the steps that it prevents. ``can_do``: what an operator can do."""

    acts: str
    meaning: str
    can_do: str


NOTHING = "Nothing."

MEANINGS: Mapping[Reason, Meaning] = {
    Reason.ALL_COPIED: Meaning("copy", "All but the active segment is in the remote tier.", NOTHING),
    Reason.OPEN_TRANSACTION: Meaning(
        "copy, trim",
        "A transaction is open inside the segment, and may still be aborted.",
        "It ends with its commit, abort or time-out. After 5 s its producer is named, if the agent may READ the topic. "
        "If it hangs, [end it by hand](operations.md#an-open-transaction).",
    ),
    Reason.NOT_REPLICATED: Meaning(
        "copy",
        "An in-sync replica has not fetched the segment to its end.",
        "Look at the followers; the broker removes a slow one from the in-sync replicas.",
    ),
    Reason.COPY_LAG: Meaning("copy", "The segment is younger than `copy.lag`.", "Wait, or shorten `copy.lag`."),
    Reason.NO_EPOCH: Meaning(
        "copy",
        "The broker's leader-epoch-checkpoint knows no epoch for the next offset.",
        "Compare `leader-epoch-checkpoint` with another replica's; let another replica lead.",
    ),
    Reason.NO_LOCAL_SEGMENT: Meaning(
        "copy",
        "The next offset to copy is above the local start, but in no file of the partition's folder.",
        "Look at the broker's log and its disk; let another replica lead.",
    ),
    Reason.ONLY_ACTIVE: Meaning("trim", "The broker has nothing left but the active segment.", NOTHING),
    Reason.LOCAL_RETENTION: Meaning(
        "trim",
        "The oldest local segment is not older than `local.retention.ms`, and without it fewer bytes than "
        "`local.retention.bytes` would stay. Only whole segments are trimmed.",
        "Shorten `local.retention.ms` or `local.retention.bytes`.",
    ),
    Reason.NOT_COPIED: Meaning(
        "trim, expire", "The oldest local segment is not in the remote tier.", "See why it is not copied."
    ),
    Reason.TRIM_DELAY: Meaning(
        "trim", "The segment was copied less than `trim.delay` ago.", "Wait, or shorten `trim.delay`."
    ),
    Reason.GROUP_HOLDS: Meaning(
        "trim",
        "A consumer group had not read the segment at the time shown; below the local start a plain consumer would be "
        "reset.",
        "Let the group catch up, exclude it (`trim.exclude_groups`), or delete it.",
    ),
    Reason.GROUPS_UNKNOWN: Meaning(
        "trim",
        "Not all consumer groups could be listed.",
        "Grant DESCRIBE on the cluster and on groups, or look at the named group.",
    ),
    Reason.UNCLEAN_ELECTIONS: Meaning(
        "trim",
        "The topic allows unclean elections, which can undo what was copied.",
        "Turn `unclean.leader.election.enable` off, or set `trim.allow_unclean`.",
    ),
    Reason.OBJECTS_MISSING: Meaning(
        "trim",
        "The daily check found that objects of readable segments are missing, or have another size.",
        "Restore the named objects (versions, a backup of the bucket): the agent checks again every ten minutes. "
        "`tierstate verify` names all of them.",
    ),
    Reason.TRIM_DISABLED: Meaning(
        "trim",
        "`trim.enabled = false`: the remote tier is [an archive](operations.md#an-archive).",
        "Set `trim.enabled`, and remove `expire.retention` and `expire.topics`.",
    ),
    Reason.NOTHING_REMOTE: Meaning("expire", "The remote tier has nothing from the log start on.", NOTHING),
    Reason.RETENTION_KEEPS: Meaning(
        "expire", "The topic's retention keeps all.", "Shorten `retention.ms` or `retention.bytes`."
    ),
    Reason.ORDER_WAITS: Meaning(
        "expire",
        "A delete-records order names an offset above the high watermark.",
        "It is carried out once the log is so long; a lower order is carried out at once.",
    ),
    Reason.ORDER_LOST: Meaning(
        "expire",
        "A delete-records order names records that an unclean election has lost.",
        "Nothing: the records that replaced them stay. To delete these too, give the order again.",
    ),
    Reason.READERS_GRACE: Meaning(
        "expire", "Objects of a segment that is marked for deletion stay for `expire.grace`, for its readers.", "Wait."
    ),
    Reason.LATE_WRITES: Meaning(
        "expire", "Objects of a failed copy stay, because an abandoned write may still land.", "Wait."
    ),
    Reason.LEASED: Meaning(
        "expire",
        "A reader's lease keeps the objects of a segment that is marked for deletion.",
        "`tierstate leases`; end it with `--end`, or override it with `delete-records --force`.",
    ),
    Reason.NOT_ARCHIVED: Meaning(
        "expire",
        "Objects are deleted once the archive has the fact, at most `archive.partial_after` later.",
        "Wait; if the chore `archive` fails, repair that.",
    ),
    Reason.REMOVAL_FAILED: Meaning(
        "expire",
        "The store did not delete objects; the agent retries.",
        "Look at the store's permissions, object lock and retention policy.",
    ),
    Reason.PAUSED: Meaning("copy, trim, expire", "An operator ordered `pause`.", "`tierstate resume`"),
    Reason.DISABLED: Meaning(
        "copy, trim", "An operator ordered `disable`; expiry goes on.", "`tierstate resume` takes it back."
    ),
    Reason.EXCLUDED: Meaning(
        "copy, trim",
        "The agent's settings no longer include the topic; remote segments still expire.",
        "Change `tiering.include` and `tiering.exclude`.",
    ),
    Reason.REFUSED_COMPACTED: Meaning(
        "copy, trim, expire",
        "The topic is compacted: its segments change after they are rolled.",
        "Set `cleanup.policy=delete`. Remote segments stay; `disable --remote delete` deletes them.",
    ),
    Reason.REFUSED_KAFKA_TIERED: Meaning(
        "copy, trim, expire",
        "Kafka's own tiered storage is on for the topic.",
        "Choose one of the two. Remote segments stay; `disable --remote delete` deletes them.",
    ),
    Reason.REFUSED_INTERNAL: Meaning(
        "copy, trim, expire", "It is one of Kafka's own topics, or the tier-state topic.", "Exclude it."
    ),
    Reason.REFUSED_FORMAT: Meaning(
        "copy",
        "The segment has batches of a message format older than v2 (Kafka 0.11).",
        "Wait until retention deletes these segments, or write the topic again.",
    ),
    Reason.DEGRADED: Meaning(
        "copy, trim, expire",
        "The tier-state topic has a fact of this partition that this version cannot read.",
        "Upgrade this agent, or look at the key with `tierstate facts`.",
    ),
    Reason.HELD: Meaning(
        "trim, expire",
        "A fact was written twice, with two values: nothing is deleted.",
        "`tierstate verify`, then `tierstate release`.",
    ),
    Reason.CONTRADICTION: Meaning(
        "trim, expire",
        "Facts contradict each other, or name objects of another segment: nothing is deleted.",
        "`tierstate settle` shows and settles them.",
    ),
    Reason.LINEAGE_UNKNOWN: Meaning(
        "trim, expire",
        "Remote segments lie below the first epoch that the leader knows, in older epochs.",
        "`tierstate settle` shows it and records your decision; or let a replica lead that knows these epochs.",
    ),
    Reason.LINEAGE_TOO_LONG: Meaning(
        "copy, trim, expire",
        "More leader epochs lie above the log start than a fact can name (thousands): no term can begin.",
        "Find out why leaders change so often; see `docs/operations.md`.",
    ),
    Reason.NO_LOG_START: Meaning(
        "trim, expire", "The first term of the partition has not written its log start yet.", "Wait."
    ),
    Reason.CLOCKS_DISAGREE: Meaning(
        "trim, expire, sweep",
        "The clocks of this machine, of a broker or of the object store differ by more than a minute. Nothing is "
        "deleted by age; copying continues.",
        "Set the named clock: [the clock is wrong](on-fire.md#the-clock-is-wrong).",
    ),
    Reason.TIER_STATE_UNSAFE: Meaning(
        "trim, expire",
        "The tier-state topic's configuration is not what it must be.",
        "`tierstate check` shows how to set it.",
    ),
    Reason.PREFIX_CONTESTED: Meaning(
        "copy, trim, expire",
        "A copy of the cluster writes below the same bucket prefix, or a person gave the prefix to the other cluster. "
        "Nothing is deleted, and nothing is copied while a process of it may live.",
        "`tierstate keep-prefix`: [a copy of the cluster](operations.md#a-copy-of-the-cluster).",
    ),
    Reason.PREFIX_UNPROVEN: Meaning(
        "trim, expire",
        "The agent has no proof yet that no other cluster writes below its bucket prefix: it started after a crash, or "
        "the object store takes no heartbeat. It copies, and deletes nothing in either tier.",
        "Wait for 80 seconds after a start. Then `tierstate keep-prefix` shows which process does not answer.",
    ),
    Reason.PREFIX_ON_TRIAL: Meaning(
        "expire",
        "The agent took over after a silence or at another place, as a copy of the cluster would. It copies, and "
        "deletes nothing for `prefix.trial`.",
        "Wait, or `tierstate keep-prefix --execute`.",
    ),
    Reason.TIER_STATE_LOST: Meaning(
        "copy, trim, expire",
        "Facts are missing. A partition of the tier-state topic does not begin at 0, or a partition with segments in "
        "the bucket has no facts: nothing is written or deleted. Or no fact finishes the copy of a complete segment: "
        "copying continues, nothing is deleted.",
        "`tierstate recover T:P`: [facts are lost](on-fire.md#facts-are-lost). The whole topic: page a human, then "
        "`tierstate recover`: [it is lost](operations.md#the-tier-state-topic-is-lost).",
    ),
    Reason.UNDECODABLE: Meaning(
        "trim",
        "The oldest local segment has a batch that Kafka serves and readers of the remote tier refuse: an offset above "
        "the batch's last one, or more than 1,048,576 headers. The broker keeps it.",
        "Write the records again, then `tierstate delete-records` as the reason says; or wait for retention.",
    ),
    Reason.CORRUPT_DATA: Meaning(
        "copy, trim",
        "A segment on the broker's disk, or an object that replaces it, is damaged; or no recovery would restore it "
        "from its manifest.",
        "Look at the named file or object; let another replica lead; `tierstate verify`.",
    ),
    Reason.STORE_AWAY: Meaning("copy, trim", "The object store does not answer, or asks to slow down.", "Look there."),
    Reason.STORE_FULL: Meaning("copy", "The object store has no room left.", "Make room."),
    Reason.TIER_STATE_AWAY: Meaning(
        "copy, trim",
        "The tier-state topic cannot be read to its end, or a write to it has no known outcome; or the disk of "
        "`state_dir` has no room for the view.",
        "Look at its leader and its in-sync replicas; make room in `state_dir`.",
    ),
    Reason.BROKER_AWAY: Meaning("copy, trim", "The broker does not answer, or leadership moves.", "Look there."),
    Reason.ACCESS_DENIED: Meaning(
        "copy, trim",
        "The broker or the store refuses a right of the agent.",
        "`tierstate check` names them.",
    ),
    Reason.FENCED: Meaning(
        "copy, trim", "Another term is in force, or the state changed during the work.", "Nothing: a new term begins."
    ),
    Reason.FAILED: Meaning("copy, trim", "Another error, in its own words.", "Read it; the agent's log has more."),
}
