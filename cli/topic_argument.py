"""``T`` and ``T:P`` as arguments. Kafka's topic names hold no colon."""

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
    """``partition`` None: all of the topic."""

    topic: str
    partition: int | None

    def __str__(self) -> str:
        return self.topic if self.partition is None else f"{self.topic}:{self.partition}"


def parse_topic(text: str) -> TopicArgument:
    """InvalidRequest for what cannot be a topic or ``topic:partition``."""
    topic, colon, partition = text.rpartition(":") if ":" in text else (text, "", "")
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise InvalidRequest("not a topic name", given=repr(text))
    if not colon:
        return TopicArgument(topic, None)
    if not _PARTITION.fullmatch(partition) or int(partition) >= 2**31:
        raise InvalidRequest("not a partition: write TOPIC:NUMBER", given=repr(text))
    return TopicArgument(topic, int(partition))


class TopicType(click.ParamType[TopicArgument]):
    """A click type whose value is a `TopicArgument`. ``partition``: True it is needed, False refused, None either."""

    def __init__(self, partition: bool | None = None) -> None:
        self.name = {True: "T:P", False: "T", None: "T[:P]"}[partition]
        self._partition = partition

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> TopicArgument:
        if isinstance(value, TopicArgument):
            return value
        try:
            found = parse_topic(str(value))
        except InvalidRequest as error:
            self.fail(str(error), param, ctx)
        if self._partition is True and found.partition is None:
            self.fail(f"one partition is needed: write {found.topic}:0", param, ctx)
        if self._partition is False and found.partition is not None:
            self.fail(f"a whole topic is needed: write {found.topic}", param, ctx)
        return found
