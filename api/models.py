"""The bodies of `/v1`, as pydantic models: they document the API in openapi.json. Offsets are Kafka's."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Problem(BaseModel):
    """The body of every error. An offset out of range comes with the valid range. Facts are further fields."""

    model_config = ConfigDict(extra="allow")

    error_code: int = Field(description="HTTP status and two digits; the REST Proxy's code where meanings match.")
    message: str
    error: str = Field(description="The kind of error, as OffsetOutOfRange.")
    valid_start: int | None = Field(default=None, description="First offset that can be read.")
    valid_end: int | None = Field(default=None, description="The end: the first offset that cannot.")


class Offsets(BaseModel):
    """A range of offsets, both included."""

    start: int
    end: int


class TopicSummary(BaseModel):
    """A tiered topic, with the sizes of its remote tier."""

    topic: str
    topic_id: str
    partitions: int
    remote_segments: int
    remote_bytes: int
    remote_records: int | None = Field(description="None where Kafka itself copied segments: it does not count.")
    local_log_bytes: int | None = Field(description="Of log that the broker has; null: no agent has said it yet.")
    freed_bytes: int | None = Field(description="Of log that the broker has no more; null as above.")
    copy_lag_segments: int | None = Field(description="Rolled segments that wait to be copied; null as above.")
    copy_lag_bytes: int | None = Field(description="Of log in them.")
    copy_lag_seconds: float | None = Field(description="Since the newest record of the oldest of them.")
    orders: list[str] = Field(description="What people ordered and is not done, of any partition.")
    trouble: list[str] = Field(description="In words, of any partition; empty: none that the view and its agents know.")
    partitions_in_trouble: int
    in_trouble: list[int] = Field(description="The first thousand of them, by number.")


class TopicList(BaseModel):
    topics: list[TopicSummary]


class Table(BaseModel):
    """An Iceberg table and its topic. A field is null if it could not be determined: `reason` says why."""

    table: str
    topic: str | None
    rows: int | None
    files: int | None
    lag: int | None = Field(description="Offsets in the remote tier that the table lacks.")
    lag_seconds: float | None = Field(description="Since the oldest of them was copied.")
    state: str = Field(description="current, behind, stopped (it cannot go on) or unknown (no answer).")
    last_commit: str | None = Field(description="When the newest snapshot was made, as ISO 8601 text in UTC.")
    reason: str | None


class TableList(BaseModel):
    """Tables that follow topics. None are listed if the gateway has no catalog, or lacks the extra `lake`."""

    tables: list[Table]


class Lease(BaseModel):
    """A reader pins these offsets."""

    id: str
    holder: str = Field(description="Where Kafka's rights decide: `another reader`, unless it is a plan of the caller.")
    offsets: Offsets
    expires_at: int = Field(description="Milliseconds since the epoch.")


class Partition(BaseModel):
    """The logical view of a partition: both tiers as one log. Bounds are null while the broker does not answer."""

    topic: str
    topic_id: str
    partition: int
    log_start_offset: int | None = Field(description="First offset of the log, over both tiers.")
    local_log_start_offset: int | None = Field(description="First offset the broker has.")
    highest_remote_offset: int | None = Field(description="Last offset in the object store; null: none.")
    last_stable_offset: int | None
    high_watermark: int | None
    remote_segments: int
    remote_bytes: int = Field(description="Bytes in the object store, of readable segments.")
    remote_log_bytes: int = Field(description="Bytes of log they stand for.")
    remote_records: int | None = Field(
        description="At or above the log start; at most so many, where it is inside a segment. None where Kafka itself "
        "copied segments: it does not count."
    )
    copied_to: int = Field(description="Last offset copied without a gap; log start - 1: none.")
    local_only_records: int | None = Field(
        description="Offsets below the high watermark that only the broker has: those of the segment that is being "
        "written, which no agent copies, and of those that wait to be copied."
    )
    overlap: Offsets | None = Field(description="Offsets that both tiers have.")
    gaps: list[Offsets] = Field(description="Offsets that must exist and belong to no tier.")
    accepted_gaps: list[str] = Field(description="Offsets that a person accepted as lost: readers go on behind them.")
    term: str | None = Field(description="Leader epoch and position of the term in force.")
    orders: list[str] = Field(description="What people ordered and is not done.")
    degraded: list[str] = Field(description="Facts that this version cannot read: the partition is read only.")
    holds: list[str] = Field(description="Why nothing is trimmed, expired or swept.")
    contradictions: list[str]
    lineage_unknown: bool
    facts_lost: str | None = Field(
        description="Which facts the agent knows to be lost, and the command that adds them."
    )
    cut_elsewhere: str | None = Field(
        description="Deletions on the broker only, and the command that extends them; null for an archive."
    )
    lost_branch: str | None = Field(description="Which copied offsets are not in the log, and why.")
    kept: list[str] = Field(description="Segments whose objects a person keeps.")
    leases: list[Lease]
    unavailable: str | None = Field(description="Why the broker's bounds are unknown.")


class PartitionList(BaseModel):
    partitions: list[Partition]


class Topic(BaseModel):
    topic: str
    topic_id: str
    partitions: list[Partition]


class Segment(BaseModel):
    """A segment's descriptor, as it stands in its manifest, with its state; more fields once it is finished."""

    model_config = ConfigDict(extra="allow")

    segment_id: str
    state: str
    offsets: Offsets | None = None
    object_key: str | None = None


class AgentStatus(BaseModel):
    """The status that the leader's agent reports. The view does not have it."""

    topic: str
    partition: int
    broker_id: int | None = Field(description="Whose agent; null: no term says that there is one.")
    address: str | None = Field(description="Its management address; null: no term names one.")
    silent: bool = Field(description="It did not answer: nothing is known, least of all that all is well.")
    status: dict[str, Any] | None = Field(description="Why not copied, trimmed, expired; lag; what failed last.")


class TimedOffset(BaseModel):
    """An offset, and about when the log reached it."""

    offset: int
    timestamp: int = Field(description="Milliseconds since the epoch.")


class PartitionTimes(BaseModel):
    """Offsets and times, both ascending. Empty: nothing is known. Times between two pairs can only be estimated."""

    partition: int
    times: list[TimedOffset]
    unavailable: str | None = Field(description="Why the broker's part, or the beginning, is not in it.")


class TimesList(BaseModel):
    topic: str
    partitions: list[PartitionTimes]


class GroupStanding(BaseModel):
    """The committed offset of a consumer group on one partition, and how far it is behind."""

    group_id: str
    partition: int
    committed_offset: int = Field(description="The next offset that it will read.")
    behind: int | None = Field(description="Offsets up to the high watermark; null: the broker's bounds are unknown.")
    in_remote_tier: bool | None = Field(description="The broker no longer has that offset; null as above.")
    said: str = Field(description="In words.")


class GroupList(BaseModel):
    """The groups that the caller may DESCRIBE, the one that is furthest behind first."""

    topic: str
    groups: list[GroupStanding]
    left_out: int = Field(description="Standings that are in no answer: a thousand are.")
    unknown: list[str] = Field(description="Why some may be missing: a broker that is away, above all.")


class RecentFact(BaseModel):
    """A fact of the tier-state topic, in words."""

    at: int = Field(description="Milliseconds since the epoch, by the clock of its writer.")
    partition: int
    fact: str = Field(description="Its kind, as `tierstate facts` prints it.")
    said: str
    offsets: Offsets | None = None


class FactList(BaseModel):
    """The newest facts first. Facts that later ones replaced are missing, because the topic is compacted."""

    topic: str
    facts: list[RecentFact]


class SegmentList(BaseModel):
    topic: str
    partition: int
    segments: list[Segment]


class FoundOffset(BaseModel):
    """The first record at or after a time; nulls when there is none."""

    topic: str
    partition: int
    offset: int | None
    timestamp: int | None = Field(description="Milliseconds since the epoch.")


class Header(BaseModel):
    key: str
    value: str | None = Field(description="base64")


class BinaryRecord(BaseModel):
    """A record of the REST Proxy's v2, plus timestamp and headers."""

    topic: str
    key: str | None = Field(description="base64")
    value: str | None = Field(description="base64")
    partition: int
    offset: int
    timestamp: int
    headers: list[Header]
