"""Conditions of a soak: every acknowledged record is read once and in order; facts and objects explain each other."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from typing import Any, TypeVar

from tests.scenarios.story_then import Eyes
from tests.soak.ground import Ground
from tests.soak.topics import KEPT_MS, LONE, SHAKEN
from tests.soak.truth import Known, Place, Record, complaints, digest
from tierstate.broker.plain_reads import PlainConsumer
from tierstate.runtime.clock import SystemClock
from tierstate.state.errors import LogGap, OffsetOutOfRange, SegmentExpired, Unavailable
from tierstate.state.ids import TopicIdPartition
from tierstate.state.object_keys import ObjectKind, base_of, object_key
from tierstate.state.offsets import Extent, Offset
from tierstate.state.partition_view import PartitionView
from tierstate.state.routing import Isolation, Tier
from tierstate.state.segment import SegmentState

T = TypeVar("T")
PATIENCE_S = 180.0
SETTLED_S = 720.0
"""A failed look for orphans (the store was away) is tried again after ten minutes."""
IN_TIME = ("deleted: its facts wait to be erased", "(failed-attempt)")
"""Findings that end by themselves: once they are archived; once nothing of the attempt can still land."""
GAP = re.compile(r"offsets \d+\.\.(\d+) belong to no tier")
LOST_BRANCH = ("out of lineage", "overlaps others")


@dataclass
class Checked:
    """Counts of all checks. ``digests``: the last, by partition; ``abandoned``, ``fenced``: all such ids and keys.

    ``expired``: gaps of records that Kafka's retention deleted while no agent could copy them.
    """

    checks: int = 0
    records: int = 0
    remote: int = 0
    verified: int = 0
    described: int = 0
    alarms: list[str] = field(default_factory=list)
    expired: list[str] = field(default_factory=list)
    abandoned: set[str] = field(default_factory=set)
    fenced: set[str] = field(default_factory=set)
    digests: dict[str, str] = field(default_factory=dict)


class Checks:
    """The checks; each returns its complaints as sentences, and a sound soak has none."""

    def __init__(self, ground: Ground) -> None:
        self.ground, self.done, self.opened = ground, Checked(), ExitStack()
        self._eyes: Eyes | None = None

    def records(self, isolation: Isolation = Isolation.READ_COMMITTED) -> list[str]:
        """Compare the records from the log start to the last acknowledged one, through both tiers."""
        wrong: list[str] = []
        with Eyes.opened(self.ground.cluster) as eyes:
            ends = self._ends(eyes, isolation)
            for place, (end, records_known) in ends.items():
                try:
                    complaints_here = list(self._one(eyes, place, end, records_known, isolation))
                except LogGap as error:
                    if not self._is_expired(*place, error.end + 1):
                        raise
                    self.done.expired.append(str(error))
                    continue
                wrong += [f"{place[0]}:{place[1]} ({isolation}): {each}" for each in complaints_here]
        self.done.checks += 1
        return wrong

    def _is_expired(self, name: str, partition: int, end: int) -> bool:
        """Return whether all records below ``end`` are older than the topic's retention.

        While too few brokers run, no agent may append a fact. Records that Kafka's retention deletes then are lost.
        """
        left = self._kept_ms(name, self.ground.truth.snapshot((name, partition)), end)
        return left is not None and left < 0

    def _kept_ms(self, name: str, known: Known, below: int) -> int | None:
        """Return how long the youngest record below an offset is still to be kept; None if there is none."""
        topic = next(each for each, topic_name, _ in self.ground.places() if topic_name == name)
        youngest = known.youngest_below(below)
        return None if youngest is None else youngest + topic.retention_ms - int(time.time() * 1000)

    def _ends(self, eyes: Eyes, isolation: Isolation) -> dict[Place, tuple[Offset, Known]]:
        """Return the end of each partition and the acknowledged records of it, while no writer writes."""
        writers, ground = self.ground.writers, self.ground
        try:
            for writer in writers:
                writer.rest()
            source = eyes.reader
            places = [(name, partition) for _, name, partition in ground.places()]
            extents = {place: partial(source.extent, *place, isolation, Tier.AUTO) for place in places}
            return {place: (_retried(extents[place])[1], ground.truth.snapshot(place)) for place in places}
        finally:
            for writer in writers:
                writer.go_on()

    def _one(self, eyes: Eyes, place: Place, end: Offset, known: Known, isolation: Isolation) -> Iterator[str]:
        start, read, plain = _retried(lambda: self._read(eyes, place, end, isolation))
        if plain != read:
            at = next((a for a, b in zip_longest(read, plain) if a != b), None)
            yield f"through the proxy {len(plain)} of {len(read)} records are read; the first that differs: {at}"
        committed = isolation is Isolation.READ_COMMITTED
        yield from complaints(self.ground.truth, known, start, end, read, committed)
        self.done.records += len(read)
        self.done.digests[f"{place[0]}:{place[1]} {isolation}"] = f"{start}..{end} {len(read)} {digest(read)[:16]}"
        left = self._kept_ms(place[0], known, start)
        if left is not None and left > 0:
            yield f"the log starts at {start}, and a record below it is to be kept for {left} ms more"
        self.ground.truth.forget_below(place, start)

    def _read(
        self, eyes: Eyes, place: Place, end: Offset, isolation: Isolation
    ) -> tuple[Offset, list[Record], list[Record]]:
        """Return the log start, and the records above it: by our own reader, and by a Kafka client at the proxy."""
        source, read = eyes.reader, list[Record]()
        start = source.extent(*place, isolation, Tier.AUTO)[0]
        remote = 0
        for batch, tier in source.records(*place, Extent(start, end), isolation, Tier.AUTO) if start < end else ():
            columns = (batch.column(name).to_pylist() for name in ("offset", "key", "value"))
            read += zip(*columns, strict=True)
            remote += batch.num_rows if tier is Tier.REMOTE else 0
        self.done.remote += remote
        with closing(PlainConsumer(eyes.proxied, isolation, SystemClock())) as consumer:
            batches = consumer.records(*place, start, end) if start < end else ()
            plain = [(each.offset, each.key or b"", each.value or b"") for batch in batches for each in batch]
        return start, read, plain

    def tally(self) -> None:
        """Record the attempts of dead and frozen agents that facts show now."""
        if self._eyes is None or self._eyes.tiers.current_topic_id() != self._eyes.tiers.topic_id:
            self._eyes = self.opened.enter_context(Eyes.opened(self.ground.cluster))
        for _, name, partition in self.ground.places():
            view = _retried(partial(_view, self._eyes, name, partition))
            self.done.abandoned |= {str(each.segment_id) for each in view.in_state(SegmentState.ABANDONED)}
            self.done.fenced |= view.fenced

    # --- the store ---------------------------------------------------------------------------------------------------

    def verify(self, strict: bool) -> list[str]:
        """Check every byte by `tierstate verify`. Unless ``strict``, findings that a sweep clears are no complaint."""
        wrong = []
        for topic in {name for _, name, _ in self.ground.places()}:
            code, output = self.ground.command("verify", topic, "--level", "3", "--json")
            if code in (0, 1, 4):
                document: dict[str, Any] = json.loads(output)
                self.done.verified += document["summary"]["segments"]
                findings = [each for each in document["findings"] if not self._is_known(topic, each)]
                worst = [each for each in findings if strict or each["severity"] in ("corrupt", "gap")]
                wrong += [f"verify {topic}: {each}" for each in worst]
            else:
                wrong.append(f"verify {topic} ended with {code}: {output[-300:]}")
        return wrong

    def _is_known(self, topic: str, finding: dict[str, Any]) -> bool:
        """Return whether the finding is expected: records lost in an election stay, as their branch may lead again."""
        what = finding["what"]
        if gap := GAP.fullmatch(what):
            return self._is_expired(topic, finding["partition"], int(gap[1]) + 1)
        branches = topic in {self.ground.full(each) for each in (SHAKEN, LONE)}
        return what.endswith(IN_TIME) or (branches and what.startswith(LOST_BRANCH))

    def alarms(self) -> list[str]:
        """Count false warnings of `describe`: they are no complaint, for it looks only once."""
        for topic, name in {topic: name for topic, name, _ in self.ground.places()}.items():
            code, output = self.ground.command("describe", name, "--json")
            for each in json.loads(output) if code == 0 else ():
                self.done.described += 1
                # Kafka's own retention may have taken records that are kept for a minute
                if topic.retention_ms == KEPT_MS and (each["cut_elsewhere"] or each["gaps"]):
                    self.done.alarms.append(f"{name}:{each['partition']} {each['cut_elsewhere'] or each['gaps']}")
        return []

    def objects(self) -> list[str]:
        """Find objects without a live fact, and facts without their object: counted here, not by our verifier."""
        with Eyes.opened(self.ground.cluster) as eyes:
            named: set[str] = set()
            needed: set[str] = set()
            places = [(name, number) for _, name, number in self.ground.places()]
            for name, partition in (*places, *((name, 0) for name in self.ground.quiet)):
                view = _retried(partial(_view, eyes, name, partition))
                alive = [
                    each for each in view.segments.values() if each.state is not SegmentState.DELETE_SEGMENT_FINISHED
                ]
                named |= {each.subject.object_key for each in alive if each.subject}
                needed |= {object_key(each.object_key, kind) for each in view.readable for kind in ObjectKind}
            keys = {each.key for each in self.ground.cluster.store.list("") if not each.key.startswith("_tierstate")}
        wrong = [f"an object that no live fact explains: {key}" for key in sorted(keys) if base_of(key) not in named]
        return wrong + [f"a fact names an object that is missing: {key}" for key in sorted(needed - keys)]

    def settled(self) -> list[str]:
        """Poll until there is no complaint left, or it takes too long."""
        deadline = time.monotonic() + SETTLED_S
        while True:
            wrong = self.verify(strict=True) + self.objects()
            if not wrong or time.monotonic() > deadline:
                return wrong
            self.ground.journal.read()
            time.sleep(3)


def _view(eyes: Eyes, name: str, partition: int) -> PartitionView:
    place = TopicIdPartition(eyes.broker.control.topic(name).topic_id, partition)
    eyes.follower.require_fresh(eyes.follower.tier_partition(place), 0)
    return eyes.follower.partition(place)


def _retried(call: Callable[[], T]) -> T:
    """Call again when a log start moved beneath a reader or a broker is busy; any other error is a complaint."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return call()
        except (Unavailable, OffsetOutOfRange, SegmentExpired):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
