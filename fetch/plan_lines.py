"""A plan as lines of JSON: the gateway's answer, and the input of readers without credentials for the bucket.

    {"plan": "…", "lease_seconds": 3600.0}
    {"segment": {…}}                                a descriptor, once, before it is named
    {"split": {"topic": "orders", "topic_id": "…", "partition": 0, "start": 0, "end": 12,
               "isolation_level": "read_committed", "leader_epoch": 3, "local_bytes_per_offset": 61.2,
               "parts": [{"start": 0, "end": 7, "segment_id": "…"}, {"start": 8, "end": 11, "segment_id": null}]}}
    {"splits": 1}                                   the last line: the plan is complete

A split is ``[start, end)``. A part includes both its ends, and its segment is null if the broker serves the part. No
part contains offsets that neither tier has and that a person accepted as lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from ..schemas.codec import descriptor_from_json, descriptor_to_json
from ..state.epochs import LeaderEpoch
from ..state.errors import CorruptData, InvalidRequest
from ..state.ids import TopicId
from ..state.offsets import Offset, OffsetRange
from ..state.routing import Isolation
from ..state.segment import RemoteSegment
from .plan import Groups, PlannedRange
from .planned_split import PlannedPart, PlannedSplit


@dataclass(frozen=True, slots=True)
class PlanHead:
    """``plan``: the plan's name, empty without a lease. ``lease_s``: seconds from now until the lease ends."""

    plan: str
    lease_s: float


def plan_lines(head: PlanHead, ranges: Iterable[PlannedRange], split_bytes: int | None) -> Iterator[bytes]:
    """Yield the lines in order. All lines of a split are one value. ``split_bytes`` None: each range is one split."""
    yield _line({"plan": head.plan, "lease_seconds": head.lease_s})
    count, last = 0, None
    for planned in ranges:
        groups = Groups(split_bytes or 0, split_bytes or 0)
        for split in (planned.whole,) if split_bytes is None else (split for split, _ in planned.cut(groups)):
            lines = []
            for part in split.parts:
                if part.segment is not None and part.segment is not last:
                    last = part.segment
                    lines.append(_line({"segment": descriptor_to_json(last)}))
            lines.append(_line({"split": _split(split, planned.local_rate)}))
            count += 1
            yield b"".join(lines)
    yield _line({"splits": count})


def plan_from(body: bytes, source: str) -> tuple[PlanHead, list[PlannedRange]]:
    """Return the splits of a body, each as a range. Raises CorruptData naming ``source`` if the body ends too early."""
    head: PlanHead | None = None
    segments: dict[str, RemoteSegment] = {}
    ranges: list[PlannedRange] = []
    try:
        for line in body.splitlines():
            entry = orjson.loads(line)
            if "segment" in entry:
                segment = descriptor_from_json(entry["segment"], source=source)
                segments[str(segment.segment_id)] = segment
            elif "split" in entry:
                ranges.append(_range(entry["split"], segments, head.plan if head is not None else ""))
            elif "plan" in entry:
                head = PlanHead(entry["plan"], entry["lease_seconds"])
            elif "splits" in entry and head is not None and entry["splits"] == len(ranges):
                return head, ranges
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, InvalidRequest) as error:
        raise CorruptData("a plan cannot be read", url=source, reason=f"{type(error).__name__}: {error}") from error
    raise CorruptData("a plan breaks off", url=source, splits=len(ranges))


def _split(split: PlannedSplit, rate: float) -> dict[str, Any]:
    return {
        "topic": split.topic,
        "topic_id": str(split.topic_id),
        "partition": split.partition,
        "start": split.start,
        "end": split.end,
        "isolation_level": split.isolation.value,
        "leader_epoch": split.leader_epoch,
        "local_bytes_per_offset": rate,
        "parts": [
            {
                "start": part.offsets.start,
                "end": part.offsets.end,
                "segment_id": None if part.segment is None else str(part.segment.segment_id),
            }
            for part in split.parts
        ],
    }


def _range(line: dict[str, Any], segments: dict[str, RemoteSegment], plan: str) -> PlannedRange:
    parts = tuple(
        PlannedPart(
            OffsetRange(Offset(part["start"]), Offset(part["end"])),
            None if part["segment_id"] is None else segments[part["segment_id"]],
        )
        for part in line["parts"]
    )
    epoch = line["leader_epoch"]
    whole = PlannedSplit(
        line["topic"],
        TopicId(line["topic_id"]),
        line["partition"],
        Offset(line["start"]),
        Offset(line["end"]),
        Isolation(line["isolation_level"]),
        None if epoch is None else LeaderEpoch(epoch),
        parts,
        plan,
    )
    return PlannedRange(whole, float(line["local_bytes_per_offset"]))


def _line(content: dict[str, Any]) -> bytes:
    return orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE)
