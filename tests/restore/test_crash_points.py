"""A restore is stopped before each of its steps, or overtaken by another one: no record is in a real broker twice.

The source is a fixed list of batches, as both tiers return them. Each case has a partition of one topic of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.log.batches import GZIP, ZSTD, Batch, marker, plain_batch, record
from tests.operations import run_until
from tests.topics import create
from tierstate.broker.answers import FetchSpec
from tierstate.broker.fenced_producer import FencedProducer
from tierstate.broker.open import Broker, open_broker
from tierstate.broker.topics import describe_topic
from tierstate.fetch.piece import Fetched, LogicalBounds
from tierstate.log.batch import TRANSACTIONAL, iter_batches
from tierstate.log.record_parser import parse_records
from tierstate.restore.ledger import Ledger, Origin
from tierstate.restore.offset_map import MappedRange, translated
from tierstate.restore.partition import PartitionRestore, Restored, TargetPartition, Tools
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.operation import Operation, run
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.errors import Fenced, InvalidRequest
from tierstate.state.offsets import Extent, Offset
from tierstate.state.routing import Isolation, Tier
from tierstate.state.segment import AbortedRange
from tierstate.storage.memory import MemoryStore

pytestmark = pytest.mark.kafka
PARTITIONS = 60
COMPACTED = Batch(40, [record(0, b"a", b"40"), record(3, b"b", b"43"), record(4, b"c", b"44")], GZIP, delta=4).bytes
LOG = [
    plain_batch(0, 4),
    plain_batch(4, 3, ZSTD, attributes=TRANSACTIONAL, producer=7),
    plain_batch(7, 3, GZIP, attributes=TRANSACTIONAL, producer=8),
    marker(10, 8, 0),
    marker(11, 7, 1),
    plain_batch(12, 5, GZIP),
    COMPACTED,
    plain_batch(45, 5),
]
ABORTED = (AbortedRange(8, Offset(7), Offset(10)),)
OFFSETS = [0, 1, 2, 3, 4, 5, 6, 12, 13, 14, 15, 16, 40, 43, 44, 45, 46, 47]
"""The committed records below `END`, which cuts the last batch."""
END = Offset(48)
BOUNDS = LogicalBounds(Offset(0), Offset(0), None, Offset(50), Offset(50))


def pieces(start: Offset, end: Offset) -> Iterator[Fetched]:
    """Yield the log in two pieces, from the batch that holds ``start`` on."""
    for batches in (LOG[:4], LOG[4:]):
        data = b"".join(each for each in batches if last_offset(each) >= start)
        if data:
            yield Fetched(data, Tier.LOCAL, ABORTED, start, end, end, BOUNDS)


def last_offset(batch: bytes) -> int:
    return int.from_bytes(batch[:8], "big") + int.from_bytes(batch[23:27], "big")


@dataclass
class Case:
    """One partition, its ledger, and as many processes as begin to restore it."""

    broker: Broker
    topic: str
    topic_id: Any
    partition: int
    store: MemoryStore

    def ledger(self) -> Ledger:
        return Ledger(self.store, f"steps/{self.partition}/")

    def begin(self, producers: list[FencedProducer]) -> Operation[Restored]:
        """Return the steps of a new process, which adds its producer to the list."""
        clock = SystemClock()
        name = f"{self.topic}-{self.partition}"
        producers.append(FencedProducer(self.broker.raw, clock, self.topic, self.partition, name))
        target = TargetPartition(self.topic, self.topic_id, self.partition, self.broker.reads)
        tools = Tools(clock, lambda size: None, lambda offsets: None, chunk_bytes=200)
        origin = Origin("cluster", "orders", "id", self.partition)
        return PartitionRestore(origin, pieces, target, self.ledger(), producers[-1], tools).steps(
            Extent(Offset(0), END)
        )

    def finish(self) -> Restored:
        producers: list[FencedProducer] = []
        try:
            return run(self.begin(producers))
        finally:
            producers[0].close()

    def keys(self) -> list[bytes | None]:
        """Return the keys of all records of the target, at any isolation level."""
        return [each.key for each in self.records()]

    def records(self) -> list[Any]:
        data, at = b"", Offset(0)
        end = self.broker.reads.bounds(self.topic, self.partition).high_watermark
        while at < end:
            spec = FetchSpec(self.topic, self.partition, at, 1 << 20, Isolation.READ_UNCOMMITTED)
            batches = self.broker.reads.fetch(spec).batches
            data, at = data + batches, Offset(self._end_of(batches))
        return list(parse_records(data, source="target"))

    @staticmethod
    def _end_of(batches: bytes) -> int:
        *_, last = iter_batches(batches, source="target")
        return last.last_offset + 1

    def check(self) -> None:
        """Every record is there once, and the map leads from each to the same."""
        assert self.keys() == KEYS
        progress = self.ledger().read()
        assert progress is not None
        places = {each.offset: each.key for each in self.records()}
        assert [places[translated(progress.ranges, offset) or 0] for offset in OFFSETS] == KEYS


KEYS = [b"k%d" % each if each < 40 or each > 44 else {40: b"a", 43: b"b", 44: b"c"}[each] for each in OFFSETS]


@pytest.fixture(scope="module")
def cases(kafka: KafkaSandbox) -> Iterator[Iterator[Case]]:
    name = "restored-in-steps"
    create(AdminClient({**kafka.client_config, "log_level": 0}), NewTopic(name, PARTITIONS, 1))
    with open_broker(kafka.client_config) as broker:
        topic_id = describe_topic(broker.raw, name).topic_id
        yield (Case(broker, name, topic_id, number, MemoryStore()) for number in count())


def steps_of(case: Case) -> list[str]:
    producers: list[FencedProducer] = []
    names = list(case.begin(producers))
    producers[0].close()
    return names


@pytest.fixture(scope="module")
def names(cases: Iterator[Case]) -> list[str]:
    return steps_of(next(cases))


def test_the_steps_are_those_that_can_be_stopped(names: list[str]) -> None:
    assert names[:3] == ["record the beginning", "fence", "record the term"]
    assert names.count("send") == 5
    assert names.count("record ranges") > 2


@pytest.mark.essential
def test_a_restore_that_is_killed_before_any_step_goes_on_without_a_record_twice(
    cases: Iterator[Case], names: list[str]
) -> None:
    for step in range(len(names)):
        case, producers = next(cases), list[FencedProducer]()
        run_until(case.begin(producers), step)  # batches in flight may land, or not
        producers[0].close()
        case.finish()
        case.check()


def test_of_two_restores_the_earlier_is_refused_and_nothing_is_there_twice(
    cases: Iterator[Case], names: list[str]
) -> None:
    first_send = names.index("send")
    for step in range(first_send, len(names)):
        case, producers = next(cases), list[FencedProducer]()
        earlier = case.begin(producers)
        for _ in range(step + 1):
            next(earlier)
        case.finish()
        with closing(producers[0]), pytest.raises(Fenced, match="another restore into this partition has begun"):
            run(earlier)
        case.check()


def test_a_restore_killed_again_and_again_ends(cases: Iterator[Case], names: list[str]) -> None:
    case, producers = next(cases), list[FencedProducer]()
    for step in (4, 3, 5, 1, 6, 4):
        run_until(case.begin(producers), step)
        producers[-1].close()
    case.finish()
    case.check()
    assert case.finish().records == 0, "a finished restore does nothing"
    case.check()


def test_a_record_of_another_producer_in_the_target_is_refused(cases: Iterator[Case], kafka: KafkaSandbox) -> None:
    case, producers = next(cases), list[FencedProducer]()
    run_until(case.begin(producers), 5)
    producers[0].drain()
    foreign: Any = Producer({**kafka.client_config, "log_level": 0})
    foreign.produce(case.topic, b"mine", partition=case.partition)
    foreign.flush(30)
    producers[0].close()
    with pytest.raises(InvalidRequest, match="another producer writes into the target"):
        case.finish()


def test_a_target_that_is_not_empty_is_refused(cases: Iterator[Case], kafka: KafkaSandbox) -> None:
    case = next(cases)
    foreign: Any = Producer({**kafka.client_config, "log_level": 0})
    foreign.produce(case.topic, b"mine", partition=case.partition)
    foreign.flush(30)
    with pytest.raises(InvalidRequest, match="the target is not empty"):
        case.finish()
    assert len(case.records()) == 1


def test_ranges_of_the_map_are_joined_over_all_steps(cases: Iterator[Case]) -> None:
    case = next(cases)
    case.finish()
    progress = case.ledger().read()
    assert progress is not None
    base = progress.target_start + 1  # the marker of the fence
    assert progress.ranges == [
        MappedRange(Offset(0), Offset(7), Offset(base), 7),
        MappedRange(Offset(12), Offset(17), Offset(base + 7), 5),
        MappedRange(Offset(40), Offset(41), Offset(base + 12), 1),
        MappedRange(Offset(43), Offset(48), Offset(base + 13), 5),
    ]
    assert progress.source_end == END
