"""The arguments ``T`` and ``T:P``. ``T-P`` is read as a topic, because names of Kafka topics may end in ``-0``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import click

from ..state.errors import InvalidRequest

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


class TopicType(click.ParamType[TopicArgument]):
    """A click type for `TopicArgument`. A partition is required if ``partition`` is True, refused if False."""

    def __init__(self, partition: bool | None = None) -> None:
        self.name = {True: "T:P", False: "T", None: "T[:P]"}[partition]
        self._partition = partition

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> TopicArgument:
        if isinstance(value, TopicArgument):
            return value
        try:
            argument = parse_topic(str(value))
        except InvalidRequest as error:
            self.fail(str(error), param, ctx)
        if self._partition is True and argument.partition is None:
            self.fail(f"one partition is needed: write {_as_typed(argument.topic)}", param, ctx)
        if self._partition is False and argument.partition is not None:
            self.fail(f"a whole topic is needed: write {argument.topic}", param, ctx)
        return argument
