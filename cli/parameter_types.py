"""The values of options and arguments: durations, sizes, times, positions, topics and partitions.

``T-P`` is read as a topic, because names of Kafka topics may end in ``-0``. Parsers are imported on use, so that
``tierstate --help`` imports no other package.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..state.errors import InvalidRequest

if TYPE_CHECKING:
    from ..app.opening.positions import Position
    from ..state.offsets import TimestampMs

T = TypeVar("T")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_PARTITION = re.compile("[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class TopicArgument:
    """A topic, or one of its partitions. ``partition`` is None for the whole topic."""

    topic: str
    partition: int | None

    def __str__(self) -> str:
        """Return the form that Kafka prints, such as ``orders-0``. Commands accept `typed` (``orders:0``) instead."""
        return self.topic if self.partition is None else f"{self.topic}-{self.partition}"

    @property
    def typed(self) -> str:
        return self.topic if self.partition is None else f"{self.topic}:{self.partition}"

    @property
    def facts(self) -> dict[str, Any]:
        """Topic and partition, as the ``facts`` of an error."""
        return {"topic": self.topic, "partition": self.partition}


def parse_topic(text: str) -> TopicArgument:
    """Parse a topic or ``topic:partition``. Raises InvalidRequest for any other text."""
    topic, colon, partition = text.rpartition(":") if ":" in text else (text, "", "")
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise InvalidRequest("not a topic name", given=repr(text))
    if not colon:
        return TopicArgument(topic, None)
    if not _PARTITION.fullmatch(partition) or int(partition) >= 2**31:
        raise InvalidRequest("not a partition: write TOPIC:NUMBER", given=repr(text))
    return TopicArgument(topic, int(partition))


def partition_meant(topic: str) -> TopicArgument | None:
    """Return the partition that a name like ``orders-0`` probably means, or None. Kafka prints partitions like this."""
    named = re.fullmatch(r"(.+)-([0-9]{1,10})", topic)
    return TopicArgument(named[1], int(named[2])) if named else None


def _as_typed(topic: str) -> str:
    meant = partition_meant(topic)
    return f"{meant.typed}, or {topic}:0 if {topic} is the topic" if meant else f"{topic}:0"


class Parsed(click.ParamType[T]):
    """A click type whose values ``parse`` makes of texts. It raises ValueError or InvalidRequest for an invalid one."""

    def __init__(self, name: str, parse: Callable[[str], T]) -> None:
        self.name, self._parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> T:
        if not isinstance(value, str):
            parsed: T = value
            return parsed
        try:
            return self._parse(value)
        except (ValueError, InvalidRequest) as error:
            self.fail(str(error), param, ctx)


def topic_type(form: str = "T[:P]") -> Parsed[TopicArgument]:
    """Return the type of a `TopicArgument` in this form: ``T``, ``T:P``, or ``T[:P]``, which takes both."""
    return Parsed(form, partial(_topic, form))


def _topic(form: str, text: str) -> TopicArgument:
    argument = parse_topic(text)
    if form == "T:P" and argument.partition is None:
        raise ValueError(f"one partition is needed: write {_as_typed(argument.topic)}")
    if form == "T" and argument.partition is not None:
        raise ValueError(f"a whole topic is needed: write {argument.topic}")
    return argument


def _duration(text: str) -> float:
    from ..runtime.units import parse_duration

    return parse_duration(text)


def _size(text: str) -> int:
    from ..runtime.units import parse_size

    size = parse_size(text)
    if size <= 0:
        raise ValueError("a size above 0")
    return size


def _rate(text: str) -> int:
    text = text.removesuffix("/s")
    if text[-1:].isdecimal():
        raise ValueError(f"a rate without a unit: {text}; write {text}MiB for MiB a second, {text}B for bytes")
    return _size(text)


def _time(text: str) -> TimestampMs:
    from ..app.opening.positions import parse_time
    from ..runtime.clock import SystemClock

    return parse_time(text, SystemClock().now_ms())


def _position(text: str) -> Position:
    from ..app.opening.positions import parse_position
    from ..runtime.clock import SystemClock

    return parse_position(text, SystemClock().now_ms())


DURATION = Parsed("duration", _duration)
"""``30s`` or ``5m``, in seconds."""
SIZE = Parsed("size", _size)
"""``64MiB``, in bytes."""
RATE = Parsed("rate", _rate)
"""``10MiB``, in bytes a second."""
TIME = Parsed("time", _time)
"""A time, in milliseconds since the epoch."""
POSITION = Parsed("position", _position)
