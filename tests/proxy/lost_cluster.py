"""A cluster that is lost: its topics are in a bucket, and `tierstate proxy --source bucket` serves them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from tests.consumer.tiered_cluster import TieredCluster
from tests.proxy.clients import PARTITIONS, level_of
from tests.proxy.python_clients import Rows
from tests.proxy.scenario import Scenario
from tierstate.app.opening.bucket_connection import BucketConnection
from tierstate.app.opening.connection import Connection
from tierstate.proxy.open import open_proxy
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.settings_load import load_settings
from tierstate.sandbox.kafka import KafkaSandbox


@dataclass
class Lost(Scenario):
    """A cluster whose broker is stopped. ``ends``: what of each topic is in the remote tier. ``starts``: the offsets of
    times by topic, from the broker.

    ``middle``: a time between the copies of the two halves of ``later``, and ``first`` the end of its first half.
    """

    ends: dict[str, list[int]] = field(default_factory=dict)
    starts: dict[str, dict[int, list[int]]] = field(default_factory=dict)
    later: str = ""
    middle: int = 0
    first: int = 0

    def expected(self, client: str) -> Rows:
        """Return what the client should read: at the broker it read the same, and more that was not copied."""
        rows, ends = self.truth(client, level_of(client)), self.ends[self.read_by(client)]
        return [row for row in rows if row[1] < ends[row[0]]]


@dataclass
class Served:
    """A proxy in this process. ``lines``: its log."""

    bootstrap: str
    connection: BucketConnection
    lines: list[tuple[str, dict[str, object]]]

    def config(self, **more: Any) -> dict[str, Any]:
        common = {"bootstrap.servers": self.bootstrap, "group.id": "x", "auto.offset.reset": "error", "log_level": 0}
        return {**common, **{name.replace("_", "."): value for name, value in more.items()}}


@contextmanager
def served(cluster: TieredCluster, state: Path, *sets: str) -> Iterator[Served]:
    """Serve the bucket on a free port until the block ends; then none of its memory may still be held."""
    lines: list[tuple[str, dict[str, object]]] = []
    sets = ("view.source=bucket", "proxy.listen=127.0.0.1:0", f"state_dir={state}", *sets)
    settings = load_settings(cluster.settings_file, sets, {}, searched=())
    with ExitStack() as opened:
        connection = opened.enter_context(BucketConnection(Connection(settings), tell=lambda age: None))
        reader = connection.reader(connection.view())
        warn = lambda event, **facts: lines.append((event, facts))  # noqa: E731
        server = opened.enter_context(open_proxy(reader, {}, settings, SystemClock(), warn))
        process = server.process()
        process.start()
        try:
            yield Served(str(server.address), connection, lines)
        finally:
            process.stop()
            assert process.join(20)
            assert process.failure is None, process.failure
            assert server.budget.used == 0, "memory that nobody gave back"


def offsets_at(bootstrap: str, topic: str, ms: int) -> list[int]:
    with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": "times"})) as consumer:
        places = [TopicPartition(topic, number, ms) for number in range(PARTITIONS)]
        return [each.offset for each in consumer.offsets_for_times(places, 20)]


def lose(folder: Path, names: Iterable[str]) -> Lost:
    """Fill a cluster with these topics of `scenario.py` and with ``later``, copy them, and stop its broker."""
    kafka = KafkaSandbox().open()
    cluster = TieredCluster(kafka, folder, "_tier-state-lost")
    cluster.settings('[archive]\npartial_after = "0s"\n')
    made = Lost(cluster)
    made.fill_topics(names)
    for topic, times in made.late_times.items():
        made.starts[topic] = {ms: offsets_at(kafka.bootstrap, topic, ms) for ms in times}
    made.later = cluster.topic("later", 400)
    cluster.run("agent", "--once")
    made.first = cluster.local_start(made.later)
    made.middle = SystemClock().now_ms() + 1
    cluster.produce(made.later, 400, 800)
    cluster.run("agent", "--once")
    cluster.run("agent", "--once")  # it archives what the first run has written last
    kafka.close()
    with served(cluster, folder / "looks") as proxy:
        with_ends = Consumer(proxy.config())
        for topic in made.topics.values():
            places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
            made.ends[topic] = [with_ends.get_watermark_offsets(place, 20)[1] for place in places]
        made.ends[made.later] = [with_ends.get_watermark_offsets(TopicPartition(made.later, 0), 20)[1]]
        with_ends.close()
    assert all(end > 500 for ends in made.ends.values() for end in ends), made.ends
    return made
