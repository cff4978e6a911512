"""Where a client begins to read. Each program of a client takes a start as one word:

    earliest             the earliest offset of each partition
    offsets:0=120,1=45   these offsets: one for each partition
    time:1767225600000   the first offset at or after this time (ms), which the client looks up by itself
    group:NAME:300       a member of the group reads 300 records or some more, commits and ends
    group:NAME           a member of the group reads to the end of the topic and commits

A group without a committed offset begins at the earliest one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Earliest:
    def __str__(self) -> str:
        return "earliest"


@dataclass(frozen=True, slots=True)
class At:
    """``offsets`` in the order of the partitions, from 0 on."""

    offsets: tuple[int, ...]

    def __str__(self) -> str:
        return "offsets:" + ",".join(f"{partition}={offset}" for partition, offset in enumerate(self.offsets))


@dataclass(frozen=True, slots=True)
class Time:
    ms: int

    def __str__(self) -> str:
        return f"time:{self.ms}"


@dataclass(frozen=True, slots=True)
class Group:
    """A member of a group ends after ``records``. None: at the end of the topic."""

    name: str
    records: int | None = None

    def __str__(self) -> str:
        return f"group:{self.name}" + ("" if self.records is None else f":{self.records}")


Start = Earliest | At | Time | Group
EARLIEST = Earliest()


class Read(NamedTuple):
    """A topic, and where a client begins to read it."""

    topic: str
    start: Start = EARLIEST

    def words(self) -> list[str]:
        """Return the arguments of a program."""
        return [self.topic, str(self.start)]


def read_of(topic: str, start: str) -> Read:
    """Return the read of these arguments."""
    way, _, text = start.partition(":")
    match way:
        case "offsets":
            return Read(topic, At(tuple(int(pair.partition("=")[2]) for pair in text.split(","))))
        case "time":
            return Read(topic, Time(int(text)))
        case "group":
            name, _, records = text.partition(":")
            return Read(topic, Group(name, int(records) if records else None))
    return Read(topic)
