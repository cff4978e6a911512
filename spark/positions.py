"""The start and end of a range, in the options of Spark's Kafka source. An option takes precedence over those after it:

startingTimestamp  >  startingOffsetsByTimestamp  >  startingOffsets  >  the default          (ending… likewise)
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..app.opening.positions import parse_time
from ..runtime.clock import SystemClock
from ..state.errors import InvalidRequest
from ..state.offsets import Offset, TimestampMs
from .option_table import DEFAULTS

LATEST, EARLIEST = -1, -2
"""Offsets in JSON options that mean the end (`LATEST`) or the start (`EARLIEST`) of a partition."""
TIMESTAMP_LOOKUP = "timestampLookup"
TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Stated:
    """The start or the end of a range: a value for each partition, which are all named, or one value for all.

    A value is an offset, `EARLIEST` or `LATEST`; with ``by_time``, a time in ms. ``option``: the option that sets it.
    ``markers``: whether a time can also mean a transaction marker.
    """

    values: Mapping[TopicPartition, int] | int
    option: str
    by_time: bool = False
    markers: bool = False

    def of(self, key: TopicPartition) -> int:
        """Return the value of a partition."""
        return self.values if isinstance(self.values, int) else self.values[key]


def stated(options: Mapping[str, str], side: str) -> Stated:
    """Return the position of a ``side``: ``starting`` or ``ending``. Raises InvalidRequest that names the option."""
    at, each, offsets = f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"
    markers = by_kafkas_lookup(options)
    if at.lower() in options:
        return Stated(_time(options[at.lower()], at), at, by_time=True, markers=markers)
    if each.lower() in options:
        times = {key: _time(value, each) for key, value in partition_json(options[each.lower()], each).items()}
        return Stated(times, each, by_time=True, markers=markers)
    text = options[offsets.lower()].strip() or DEFAULTS[offsets.lower()]
    edge = {"earliest": EARLIEST, "latest": LATEST}.get(text.lower())
    return Stated(_offsets(text, offsets) if edge is None else edge, offsets)


def by_kafkas_lookup(options: Mapping[str, str]) -> bool:
    """Return whether times are looked up as Kafka does, which also finds markers. Raises InvalidRequest."""
    text = options[TIMESTAMP_LOOKUP.lower()].strip().lower()
    if text not in ("records", "kafka"):
        raise InvalidRequest(f"option {TIMESTAMP_LOOKUP} is records or kafka", got=repr(text))
    return text == "kafka"


def check_batch(starting: Stated, ending: Stated) -> None:
    """Raise InvalidRequest if a batch begins at the end, ends at the beginning, or begins after its end."""
    for side, edge, word in ((starting, LATEST, "latest"), (ending, EARLIEST, "earliest")):
        by_partition = {} if isinstance(side.values, int) else side.values
        wrong = [f"{topic}-{partition}" for (topic, partition), value in sorted(by_partition.items()) if value == edge]
        if side.values == edge or wrong:
            names = {"partitions": ",".join(wrong)} if wrong else {}
            raise InvalidRequest(f"option {side.option} cannot be {word} in a batch query", **names)
    if not (starting.by_time or isinstance(starting.values, int) or ending.by_time or isinstance(ending.values, int)):
        for key in sorted(starting.values.keys() & ending.values.keys()):
            if starting.values[key] > ending.values[key] >= 0:
                raise start_above_end(starting, key, starting.values[key], ending.values[key])


def start_above_end(starting: Stated, key: TopicPartition, start: int, end: int) -> InvalidRequest:
    """Return the error of a range that begins after its end. Spark's Kafka source refuses such a range, too."""
    return InvalidRequest(
        f"option {starting.option}: the start offset {start} is greater than the end offset {end}",
        topic=key[0],
        partition=key[1],
    )


def check_stream(names: Collection[str]) -> None:
    """Raise InvalidRequest if an option sets an end: a stream has none. ``names``: set options, in lower case."""
    for option in ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets"):
        if option.lower() in names:
            raise InvalidRequest(f"option {option} is not for a stream: it has no end (trigger availableNow ends it)")


def check_complete(side: Stated, partitions: list[TopicPartition]) -> None:
    """Raise InvalidRequest unless positions by partition name exactly the partitions that are read."""
    if isinstance(side.values, int):
        return
    named = set(side.values)
    if named != set(partitions):
        raise InvalidRequest(
            f"option {side.option} must name every partition that is read, and no other (-1 is latest, -2 is earliest)",
            missing=_names(set(partitions) - named) or None,
            unknown=_names(named - set(partitions)) or None,
        )


def partition_json(text: str, option: str) -> dict[TopicPartition, Any]:
    """Return the value of each partition in ``{"topic": {"0": 23}}``. Raises InvalidRequest that names ``option``."""
    try:
        document = json.loads(text)
        return {(topic, _partition(number)): value for topic, by in document.items() for number, value in by.items()}
    except (ValueError, AttributeError) as error:
        raise InvalidRequest(
            f'option {option} is earliest, latest or JSON like {{"topicA":{{"0":23,"1":-1}},"topicB":{{"0":-2}}}}'
            if option.endswith("Offsets")
            else f'option {option} is JSON like {{"topicA":{{"0":1767225600000}}}}',
            got=text,
        ) from error


def _partition(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(text)
    return int(text)


def _offsets(text: str, option: str) -> dict[TopicPartition, int]:
    offsets = partition_json(text, option)
    for (topic, partition), offset in offsets.items():
        if not _is_whole(offset) or offset < EARLIEST:
            raise InvalidRequest(
                f"option {option}: not an offset", topic=topic, partition=partition, offset=repr(offset)
            )
    return {key: Offset(offset) for key, offset in offsets.items()}


def _time(value: Any, option: str) -> TimestampMs:
    """Return the time of a number (ms since the epoch), or of a text for `parse_time`. Raises InvalidRequest."""
    time = value if _is_whole(value) else None
    if isinstance(value, str):
        with suppress(InvalidRequest):
            time = parse_time(value.strip(), SystemClock().now_ms())
    if time is None or not 0 <= time < 2**63:
        raise InvalidRequest(
            f"option {option}: not a time: write ISO 8601, milliseconds since the epoch, or -3d", time=repr(value)
        )
    return TimestampMs(time)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def _names(partitions: set[TopicPartition]) -> str:
    return ",".join(f"{topic}-{partition}" for topic, partition in sorted(partitions))
