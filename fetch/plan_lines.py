"""A plan as lines of JSON: what the gateway answers and whoever reads without a key to the bucket takes in.

    {"plan": "…", "lease_seconds": 3600.0}
    {"segment": {…}}                                a descriptor, once, before it is named
    {"split": {"topic": "orders", "topic_id": "…", "partition": 0, "start": 0, "end": 12,
               "isolation_level": "read_committed", "leader_epoch": 3, "local_bytes_per_offset": 61.2,
               "parts": [{"start": 0, "end": 7, "segment_id": "…"}, {"start": 8, "end": 11, "segment_id": null}]}}
    {"splits": 1}                                   the last line: nothing broke off

A split is ``[start, end)``; its parts have both ends included, and no segment where the broker serves them. They leave
out offsets that neither tier has and a person accepted as lost.
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
    """``plan``: its name, empty where no lease keeps it; ``lease_s``: how long one does, from now."""

    plan: str
    lease_s: float


def plan_lines(head: PlanHead, ranges: Iterable[PlannedRange], split_bytes: int | None) -> Iterator[bytes]:
    """Lines in order, those of one split together. ``split_bytes`` None: a range is one split."""
    yield _line({"plan": head.plan, "lease_seconds": head.lease_s})
    count, last = 0, None
    for each in ranges:
        groups = Groups(split_bytes or 0, split_bytes or 0)
        for split in (each.whole,) if split_bytes is None else (split for split, _ in each.cut(groups)):
            lines = []
            for part in split.parts:
                if part.segment is not None and part.segment is not last:
                    last = part.segment
                    lines.append(_line({"segment": descriptor_to_json(last)}))
            lines.append(_line({"split": _split(split, each.local_rate)}))
            count += 1
            yield b"".join(lines)
    yield _line({"splits": count})


def plan_from(body: bytes, source: str) -> tuple[PlanHead, list[PlannedRange]]:
    """The splits of a body, each as a range. Raises CorruptData naming ``source``, where it ends too early."""
    head: PlanHead | None = None
    segments: dict[str, RemoteSegment] = {}
    found: list[PlannedRange] = []
    try:
        for line in body.splitlines():
            said = orjson.loads(line)
            if "segment" in said:
                segment = descriptor_from_json(said["segment"], source=source)
                segments[str(segment.segment_id)] = segment
            elif "split" in said:
                found.append(_range(said["split"], segments, head.plan if head is not None else ""))
            elif "plan" in said:
                head = PlanHead(said["plan"], said["lease_seconds"])
            elif "splits" in said and head is not None and said["splits"] == len(found):
                return head, found
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, InvalidRequest) as error:
        raise CorruptData("a plan cannot be read", url=source, reason=f"{type(error).__name__}: {error}") from error
    raise CorruptData("a plan breaks off", url=source, splits=len(found))


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


def _range(said: dict[str, Any], segments: dict[str, RemoteSegment], plan: str) -> PlannedRange:
    parts = tuple(
        PlannedPart(
            OffsetRange(Offset(part["start"]), Offset(part["end"])),
            None if part["segment_id"] is None else segments[part["segment_id"]],
        )
        for part in said["parts"]
    )
    epoch = said["leader_epoch"]
    whole = PlannedSplit(
        said["topic"],
        TopicId(said["topic_id"]),
        said["partition"],
        Offset(said["start"]),
        Offset(said["end"]),
        Isolation(said["isolation_level"]),
        None if epoch is None else LeaderEpoch(epoch),
        parts,
        plan,
    )
    return PlannedRange(whole, float(said["local_bytes_per_offset"]))


def _line(found: dict[str, Any]) -> bytes:
    return orjson.dumps(found, option=orjson.OPT_APPEND_NEWLINE)
