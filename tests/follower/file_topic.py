"""A tier-state topic in a file, so that a process can follow what another one writes; and the process that follows it.

One JSON line a record, or a truncation. ``python -m tests.follower.file_topic MODE FILE STATE`` prints ``begin`` and
does one thing until it is killed: ``follow`` applies and rebuilds, ``seeded`` does so from checkpoints, ``checkpoint``
writes checkpoint after checkpoint, ``putting`` does so through a store that takes its time.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

from tests.twins.memory_tier_topic import MemoryTierTopic
from tierstate.broker.tier_reader import TierBatch, TierReader
from tierstate.follower.checkpoint import CheckpointSeed, checkpoint
from tierstate.follower.follower import Follower
from tierstate.follower.following import Following
from tierstate.follower.open import open_view
from tierstate.follower.rocksdb_view import RocksView, ViewIdentity
from tierstate.follower.view_identity import Shelf
from tierstate.runtime.clock import SystemClock
from tierstate.schemas.codec import decode_fact
from tierstate.state.offsets import Position
from tierstate.storage.directory import DirectoryStore
from tierstate.storage.object_store import DEFAULT_PART_BYTES, Data, ObjectStore
from tierstate.storage.open import open_store

PARTITIONS = 3
AT_ONCE = 10
"""Records of a batch: few, so that there are many write batches in which to kill the process."""


class FileTopic(MemoryTierTopic):
    """The topic as far as it was read from the file; `say` and `truncate` write to the file only."""

    def __init__(self, path: Path) -> None:
        super().__init__(PARTITIONS)
        self._path, self._read = path, 0
        path.touch()
        self.refresh()

    def refresh(self) -> None:
        with self._path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            record = json.loads(line)
            if "truncate" in record:
                super().truncate(*record["truncate"])
            else:
                value = None if record["value"] is None else base64.b64decode(record["value"])
                super().append(record["partition"], record["key"], value)

    def _write(self, lines: list[dict[str, object]]) -> None:
        with self._path.open("ab") as file:
            file.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        self.refresh()

    def say(self, records: list[tuple[int, str, bytes | None]]) -> None:
        self._write(
            [
                {"partition": number, "key": key, "value": None if value is None else base64.b64encode(value).decode()}
                for number, key, value in records
            ]
        )

    def truncate(self, tier_partition: int, to: int) -> None:
        self._write([{"truncate": [tier_partition, to]}])

    def end(self, tier_partition: int) -> Position:
        self.refresh()
        return super().end(tier_partition)

    def reader(self, positions: Mapping[int, Position], epochs: Mapping[int, int] | None = None) -> TierReader:
        self.refresh()
        return _SmallBatches(self, super().reader(positions, epochs))


class _SmallBatches:
    def __init__(self, topic: FileTopic, whole: TierReader) -> None:
        self._topic, self._whole = topic, whole
        self._queue: list[TierBatch] = []

    def poll(self, timeout: float) -> list[TierBatch]:
        if not self._queue:
            self._topic.refresh()
            for batch in self._whole.poll(min(timeout, 0.01)):
                pieces = [batch.entries[at : at + AT_ONCE] for at in range(0, len(batch.entries), AT_ONCE)]
                ends = [Position(piece[-1].position + 1) for piece in pieces]
                self._queue += [
                    TierBatch(batch.tier_partition, piece, end, epoch=batch.epoch)
                    for piece, end in zip(pieces, ends, strict=True)
                ]
        return [self._queue.pop(0)] if self._queue else []

    def close(self) -> None:
        self._whole.close()


class StandingStore(DirectoryStore):
    """A store that takes so many kilobytes of what is put, then prints that it blocks: its process is killed there."""

    left = 0

    def put_stream(self, key: str, pieces: Iterable[Data], *, part_bytes: int = DEFAULT_PART_BYTES) -> int:
        return super().put_stream(key, self._counted(pieces), part_bytes=part_bytes)

    def _counted(self, pieces: Iterable[Data]) -> Iterator[Data]:
        for piece in pieces:
            for at in range(0, len(piece), 1024):
                if not self.left:
                    print("standing", flush=True)
                    SystemClock().sleep(600)
                self.left -= 1
                yield bytes(piece[at : at + 1024])


def identity_of(topic: MemoryTierTopic) -> ViewIdentity:
    return ViewIdentity("cluster", topic.topic_id, PARTITIONS)


def objects_of(state: Path) -> ObjectStore:
    return open_store((state / "objects").as_uri(), make=True)


def follow(topic: FileTopic, state: Path, *, tail: bool, objects: ObjectStore | None = None) -> Follower:
    seed = CheckpointSeed(topic, objects, identity_of(topic), SystemClock(), lambda *_: None) if objects else None
    return open_view(topic, "cluster", SystemClock(), Following(tail=tail, seed=seed), state_dir=state)


def write_checkpoints(topic: FileTopic, state: Path, objects: ObjectStore) -> None:
    """Write checkpoints in rounds over all partitions, each checkpoint from the one before it."""
    count = 0
    while True:
        for number in range(PARTITIONS):
            count += 1
            steps = checkpoint(
                topic,
                Shelf(objects, identity_of(topic), number),
                SystemClock(),
                2,
                partial(RocksView, Path(mkdtemp(dir=state)), identity_of(topic), decode_fact),
                lambda key, error: None,
            )
            for _ in steps:
                pass
        topic.say([(number, f"foreign-{count}", None) for number in range(PARTITIONS)])  # a new position


def main(mode: str, file: str, state: str, kilobytes: str = "0") -> None:
    topic = FileTopic(Path(file))
    print("begin", flush=True)
    if mode == "checkpoint":
        write_checkpoints(topic, Path(state), objects_of(Path(state)))
    if mode == "putting":
        store = StandingStore(Path(state) / "objects")
        store.left = int(kilobytes)
        write_checkpoints(topic, Path(state), store)
    objects = objects_of(Path(state)) if mode == "seeded" else None
    with_tail = follow(topic, Path(state), tail=True, objects=objects)
    while with_tail.store is not None:
        SystemClock().sleep(60)


if __name__ == "__main__":
    main(*sys.argv[1:])
