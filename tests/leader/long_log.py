"""A partition with a long backlog on the broker's disk, or with a long history in the remote tier."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.leader.world import World
from tierstate.schemas.codec import encode_fact
from tierstate.state.facts import SegmentCopyFinished, SegmentCopyStarted
from tierstate.state.ids import RemoteSegmentId
from tierstate.state.keys import key_of
from tierstate.state.object_keys import ObjectKeys
from tierstate.state.offsets import Offset, OffsetRange
from tierstate.state.segment import CopyAttempt

MODEL, RECORDS = 1423, 77
"""A rolled segment of the folder "none", of 10 KB: every added segment is like it."""
SUFFIXES = (".log", ".index", ".timeindex")


class LongLog:
    """``world`` has the folder "none". ``active`` is the base of the active segment, which has records too."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._files = {suffix: world.file(MODEL, suffix).read_bytes() for suffix in SUFFIXES}
        self._snapshot = world.file(MODEL, ".snapshot").read_bytes()
        self._batches = world.batches(MODEL)
        world.roll()
        self.active = world.bases[-1]
        self._write()
        world.broker.append(world.name, 0, RECORDS)

    def grow(self, segments: int = 1) -> None:
        """Let the broker roll this many segments."""
        for _ in range(segments):
            self.active += RECORDS
            self._write()
        self.world.broker.append(self.world.name, 0, segments * RECORDS)

    def _write(self) -> None:
        log = bytearray(self._files[".log"])
        for batch in self._batches:  # its checksum does not cover the base offset
            log[batch.position : batch.position + 8] = (batch.base_offset - MODEL + self.active).to_bytes(8, "big")
        for suffix, data in {**self._files, ".log": bytes(log), ".snapshot": self._snapshot}.items():
            self.world.file(self.active, suffix).write_bytes(data)

    def remember(self, segments: int) -> None:
        """Add facts of this many more segments, copied and trimmed; neither files nor objects are left."""
        world, view, chance = self.world, self.world.view(), random.Random(self.active)
        model = view.readable[0]
        for _ in range(segments):
            offsets = OffsetRange(Offset(self.active), Offset(self.active + RECORDS - 1))
            segment_id = RemoteSegmentId.of(chance.randbytes(16))
            key = ObjectKeys().base_key(world.name, world.topic_id, 0, offsets.start, segment_id)
            segment = replace(
                model,
                segment_id=segment_id,
                object_key=key,
                offsets=offsets,
                last_record_offset=offsets.end,
                leader_epochs=view.lineage.within(offsets),
            )
            attempt = CopyAttempt(
                world.partition, world.name, segment_id, offsets, key, model.term, model.broker_id, model.copied_at
            )
            for fact in (SegmentCopyStarted(attempt), SegmentCopyFinished(segment)):
                world.topic.append(0, key_of(fact), encode_fact(fact))
            self.active += RECORDS
        world.broker.append(world.name, 0, segments * RECORDS)
        world.broker.delete_records_on(model.broker_id, world.name, 0, Offset(self.active))
        self._write()
        world.retire()
