"""Kafka's metadata topic in memory: the records of a real one, as a `MetadataTopic` gives them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tierstate.broker.tier_reader import TierBatch
from tierstate.state.ids import TopicId
from tierstate.state.offsets import Position
from tierstate.state.view import Entry

GOLDEN = Path(__file__).parent / "golden"


class GoldenTopic:
    """``ends``: the ends that are known, so that a test shows records step by step. ``read``: positions of readers."""

    topic_id = TopicId.of(b"m" * 16)

    def __init__(self, rows: Sequence[tuple[int, bytes]], partitions: int = 2) -> None:
        self.partitions = partitions
        self.logs: dict[int, list[bytes]] = {number: [] for number in range(partitions)}
        for number, value in rows:
            self.logs[number].append(value)
        self.starts, self.read = dict.fromkeys(self.logs, 0), list[dict[int, int]]()

    @classmethod
    def of(cls, name: str) -> GoldenTopic:
        lines = (GOLDEN / f"{name}.metadata.jsonl").read_text().splitlines()
        return cls([(row["partition"], bytes.fromhex(row["value"])) for row in map(json.loads, lines)])

    def end(self, number: int) -> Position:
        return Position(len(self.logs[number]))

    def start(self, number: int) -> Position:
        return Position(self.starts[number])

    def reader(self, positions: Mapping[int, Position], epochs: Mapping[int, int]) -> GoldenReader:
        self.read.append(dict(positions))
        return GoldenReader(self, dict(positions))


class GoldenReader:
    MOST = 7

    def __init__(self, topic: GoldenTopic, positions: dict[int, Position]) -> None:
        self._topic, self._positions = topic, positions

    def poll(self, timeout: float) -> list[TierBatch]:
        batches = []
        for number, at in self._positions.items():
            values = self._topic.logs[number][at : at + self.MOST]
            entries = tuple(Entry("", Position(at + n), value) for n, value in enumerate(values))
            self._positions[number] = Position(at + len(values))
            if entries:
                batches.append(TierBatch(number, entries, self._positions[number], epoch=0))
        return batches

    def close(self) -> None:
        """Do nothing: there is nothing to release."""
