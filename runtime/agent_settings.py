"""Settings of agents: what is copied, trimmed, expired and swept, and when."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from .remote_retention import FOREVER, TOPIC, RemoteRetention, parse_retention, parse_rule
from .setting_types import SEVERAL, Duration, Folders, Patterns, Section, Size


def _retention(text: str) -> str:
    if text:
        parse_retention(text)
    return text


def _rule(text: str) -> str:
    parse_rule(text)
    return text


Rules = Annotated[tuple[Annotated[str, AfterValidator(_rule)], ...], SEVERAL]


class Agent(Section):
    """The agent, and where it reads logs."""

    source: Literal["disk", "fetch"] = "disk"
    """disk: from the log folders of its broker. fetch: of all brokers, by Kafka's Fetch; one or more agents
    for the cluster, anywhere near it (managed.md)."""
    log_dirs: Folders = ()
    """The broker's log.dirs; an agent with `source = "disk"` needs them."""
    spool: Size = Field(default=8 << 30, gt=0)
    """With `source = "fetch"`: bytes below `state_dir` for what is fetched and not yet copied."""


class Copy(Section):
    """Copies from the local tier to the remote tier."""

    lag: Duration = Field(default=0.0, ge=0)
    """How long a rolled segment waits before it is copied."""
    roll_bytes: Size = Field(default=256 << 20, gt=0)
    """With `agent.source = "fetch"`: a segment ends at this size, or where one of the broker's ends."""
    roll_after: Duration = Field(default=3600.0, gt=0)
    """With `agent.source = "fetch"`: a segment ends this long after its first record was fetched."""
    concurrency: int = Field(default=4, ge=1, le=256)
    """Segments copied at a time."""
    quota: Size = 0
    """Bytes a second that one agent uploads; 0: no limit."""


class Trim(Section):
    """Trims of the local tier, once records are copied."""

    enabled: bool = True
    """false: an archive. Nothing is trimmed, Kafka's retention deletes local segments, and `expire.retention` decides
    about the remote tier."""
    delay: Duration = Field(default=900.0, ge=0)
    """How long a copied segment stays local, whatever retention says."""
    respect_groups: bool = True
    """Trim nothing that a [consumer group](operations.md#plain-consumers) has not read."""
    exclude_groups: Patterns = ()
    """Groups that hold nothing: whole-name regular expressions."""
    group_hold_max: Duration = Field(default=7 * 86_400.0, ge=0)
    """How long a group may hold local segments."""
    proof: Literal["checksum", "read"] = "checksum"
    """How objects are proven before local data goes: by the store's own checksum of the whole object (S3, Google), and
    by reading them back where there is none; read: always by reading them back."""
    allow_unclean: bool = False
    """Trim topics that allow unclean leader election too."""


class Expire(Section):
    """The remote tier's retention."""

    retention: Annotated[str, AfterValidator(_retention)] = ""
    """With `trim.enabled = false`: how long the remote tier keeps records. `topic`: as Kafka does; `forever`; a
    duration as `7y`; a size as `10TiB`. Empty: `forever`, and with trimming `topic`."""
    topics: Rules = ()
    """The same by topic, as `PATTERN=RETENTION`; the first pattern that matches the whole name counts."""
    grace: Duration = Field(default=60.0, ge=0)
    """From the delete-started fact to the deletion, for readers."""

    def of(self, topic: str, *, trims: bool) -> RemoteRetention | None:
        """Return the remote tier's own retention of a topic; None if Kafka's settings decide. ``trims``: of `Trim`."""
        if trims:
            return None
        for rule in self.topics:
            pattern, retention = parse_rule(rule)
            if pattern.fullmatch(topic):
                return retention
        return parse_retention(self.retention or FOREVER)

    @property
    def is_set(self) -> bool:
        """Return whether a retention is set that needs ``trim.enabled = false``."""
        return bool(self.topics) or self.retention not in ("", TOPIC)


class Sweep(Section):
    """Orphans and abandoned segments."""

    grace: Duration = Field(default=86_400.0, ge=0)
    """Between the two looks that condemn an object."""
    quarantine_prefix: str = ""
    """Swept objects are moved below this key prefix instead of being deleted."""


class Lease(Section):
    """The leases by which batch readers keep objects."""

    max: Duration = Field(default=86_400.0, gt=0)
    """The longest a reader's lease may last."""


class Archive(Section):
    """The history of facts, kept in the bucket."""

    keep: Duration = Field(default=400 * 86_400.0, ge=0)
    """How long erased facts stay readable."""
    partial_after: Duration = Field(default=600.0, ge=0, le=6 * 3600.0)
    """How long a fact waits for others before it is archived; what people say does not wait."""


class Backup(Section):
    """Backups of what a restore needs in addition to records, kept in the bucket."""

    every: Duration = Field(default=3600.0, ge=0)
    """How often an agent backs up topics, groups, access lists, quotas and schemas, if they changed; 0: never. A
    changed topic, access list or quota does not wait for more than a minute. Kept for `archive.keep`."""


class Checkpoint(Section):
    """Snapshots of the view, kept in the bucket."""

    keep: int = Field(default=3, ge=1, le=1000)
    """Checkpoints kept for each tier-state partition."""


class Prefix(Section):
    """The proof that no other cluster writes below the bucket prefix."""

    heartbeat: Duration = Field(default=20.0, gt=0, le=20.0)
    """Between two heartbeats; a proof is three of them old at most."""
    trial: Duration = Field(default=86_400.0, ge=0)
    """How long nothing is deleted or archived after an agent took over after a silence or elsewhere."""


class Custodian(Section):
    """Partitions whose topic no longer exists."""

    grace: Duration = Field(default=7 * 86_400.0, ge=0)
    """From the first look that misses a topic to the end of its partitions."""
