"""The story, step by step; every step really happens, and every claim is compared with something independent."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tierstate.sandbox.artifacts import kafka_libs

from . import flights as data
from .house import DAY_MS, PARTITIONS, TOPIC, DemoFailed, House, wait_for
from .pipeline import WHOLE, run_spark
from .readers import (
    ranges_of,
    read_gateway_arrow,
    read_gateway_json,
    read_with_consume,
    read_with_kafka_consumer,
)
from .record_digest import Records, first_difference, topic_digest
from .report import Reader, Report, Tiers
from .screen import Screen, Update
from .table import ask_table, check_table, make_table

ZERO = dict.fromkeys(range(PARTITIONS), 0)
TOPIC_CONFIG = {
    "segment.ms": str(7 * DAY_MS),
    "retention.ms": str(400 * DAY_MS),
    "local.retention.ms": str(3 * DAY_MS),
}


class Story:
    """The whole demo; call `tell` once."""

    def __init__(self, house: House, screen: Screen, report: Report, out: Path, limit: int | None) -> None:
        self.house, self.screen, self.report, self.out, self.limit = house, screen, report, out, limit
        self.truth = Records()
        self.ends: dict[int, int] = {}
        self.starts: dict[int, int] = {}
        self.ranges: dict[int, list[tuple[int, int]]] = {}

    def tell(self) -> None:
        """Run all steps. Raises DemoFailed at the first result that is not as it must be."""
        self.screen.say(
            "[bold]tierstate[/bold]: a year of events, three days on the broker, the rest in the object store\n"
        )
        self._start()
        self._produce()
        self._copy_and_trim()
        self._read_back()
        self._spark()
        self._table()
        self._rebuild_the_view()
        if self.house.keep:
            self.house.spawn_agent()
            self._spawn_gateway()
            self._spawn_proxy()

    # --- 1, 2: a broker and a year of events ---------------------------------------------------------------------

    def _start(self) -> None:
        with self.screen.step("kafka", "A real Kafka broker") as update:
            kafka_libs(lambda text: update(text, None))
            update("starting", None)
            self.house.start_kafka()
            self.house.run("init")
            update(f"KRaft, one node, {self.house.bootstrap}", None)

    def _produce(self) -> None:
        with self.screen.step("produce", "A year of flights") as update:
            update("reading the CSV", None)
            flights = data.flights(self.limit)
            self.report.csv_answer = data.csv_answer() if self.limit is None else []
            shift = int(time.time() * 1000) - flights[-1].at
            admin = AdminClient({"bootstrap.servers": self.house.bootstrap})
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=TOPIC_CONFIG)])[TOPIC].result(30)
            producer = Producer(
                {
                    "bootstrap.servers": self.house.bootstrap,
                    "compression.type": "zstd",
                    "linger.ms": 5,
                    "batch.num.messages": 500,
                    "enable.idempotence": True,
                    "queue.buffering.max.messages": 1_000_000,
                }
            )
            for number, flight in enumerate(flights):
                producer.produce(TOPIC, key=flight.key, value=flight.value, timestamp=flight.at + shift)
                if number % 5000 == 0:
                    producer.poll(0)
                    update(f"{number:,} events", number / len(flights))
            if producer.flush(60):
                raise DemoFailed("not every event was acknowledged by the broker")
            self.report.records = len(flights)
            update(f"{len(flights):,} events in {PARTITIONS} partitions", None)
        with self.screen.step("truth", "What the broker holds, digested") as update:
            self.ends = self._end_offsets()
            self.truth = read_with_kafka_consumer(self.house.bootstrap, ZERO, self.ends, update)
            if self.truth.count != self.report.records:
                raise DemoFailed(f"the broker has {self.truth.count} records, {self.report.records} were produced")
            self.report.digest_before_trim = self.truth.topic_digest()
            self.report.local_bytes_before = self.house.local_bytes()
            update(f"{self.truth.count:,} records, {self.report.digest_before_trim[:12]}…", None)

    def _end_offsets(self) -> dict[int, int]:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.house.bootstrap, "group.id": "demo"})
        ends = {p: consumer.get_watermark_offsets(TopicPartition(TOPIC, p), 10)[1] for p in range(PARTITIONS)}
        consumer.close()
        return ends

    # --- 3: copy, kill, copy, trim -------------------------------------------------------------------------------

    def _copy_and_trim(self) -> None:
        rolled = sum(max(0, len(list(self.house.log_dir.glob(f"{TOPIC}-{p}/*.log"))) - 1) for p in range(PARTITIONS))
        house, report = self.house, self.report
        with self.screen.step("copy", "Copying every rolled segment") as update:
            # with few segments copying would be over before it could be killed
            slowly = () if self.limit is None else ("--set", f"copy.quota={max(1, report.local_bytes_before // 6)}")
            house.spawn_agent(*slowly)

            def copied(share: float) -> Callable[[], bool]:
                def look() -> bool:
                    done = house.manifests()
                    update(f"{done} of {rolled} segments", done / max(1, rolled))
                    return done >= share * rolled

                return look

            wait_for("copying", 120, copied(0.3), house, "agent")
            house.kill("agent")
            report.segments_when_killed = house.manifests()
            report.agent_killed_during_copy = report.segments_when_killed < rolled
            update(f"[red]agent killed[/red] (SIGKILL) after {report.segments_when_killed} segments; again", None)
            self.house.spawn_agent()
            wait_for("copying", 300, copied(1), house, "agent")
            wait_for("the last fact", 60, lambda: self._readable() >= rolled, house, "agent")
            update(f"{rolled} segments; the agent was killed after {report.segments_when_killed} and went on", None)
        with self.screen.step("trim", "Trimming the broker") as update:
            update("DeleteRecords, then the broker drops its files", None)
            wait_for("trimming", 120, self._is_trimmed, house, "agent")
            report.local_bytes_after = house.local_bytes()
            update(f"{report.local_bytes_before:,} → {report.local_bytes_after:,} bytes", None)
        house.stop("agent")
        self.ranges = ranges_of(house)
        self._remember_tiers()

    def _readable(self) -> int:
        return sum(topic["remote_segments"] for topic in self.house.json("topics") if topic["topic"] == TOPIC)

    def _is_trimmed(self) -> bool:
        """Return whether only local retention keeps the rest, as agents report, and all files below it are deleted."""
        described = self.house.json("describe", TOPIC)
        for p in described:
            status = p["agent"] if isinstance(p["agent"], dict) else {}
            if p["local_log_start_offset"] == 0 or status.get("not_trimmed_reason") not in (
                "local-retention",
                "only-active",
            ):
                return False
        # a file leaves the folder when its segment is below the log start; `.deleted` ones go a second later
        return all(
            int(path.stem) >= p["local_log_start_offset"]
            for p in described
            for path in self.house.log_dir.glob(f"{TOPIC}-{p['partition']}/*.log")
        )

    def _remember_tiers(self) -> None:
        for p in self.house.json("describe", TOPIC):
            self.starts[p["partition"]] = p["local_log_start_offset"]
            remote_end = (p["highest_remote_offset"] if p["highest_remote_offset"] is not None else -1) + 1
            self.report.tiers.append(
                Tiers(
                    p["partition"], p["log_start_offset"], p["local_log_start_offset"], remote_end, p["high_watermark"]
                )
            )
        self.report.segments_copied = sum(map(len, self.ranges.values()))
        self.report.remote_objects, self.report.remote_bytes = self.house.remote_objects()
        self.report.ranges_compared = self.report.segments_copied + PARTITIONS

    # --- 4: readers of both tiers, and what a plain consumer still sees, alone and through the proxy ---------------

    def _read_back(self) -> None:
        house, total = self.house, self.report.records
        self._spawn_gateway()
        self._compare("tierstate consume", lambda told: read_with_consume(house, total, told))
        self._compare("gateway, binary JSON", lambda told: read_gateway_json(house.gateway, self.ends, told))
        self._compare("gateway, Arrow", lambda told: read_gateway_arrow(house.gateway, self.ends, told))
        house.stop("gateway")
        self._compare(
            "plain consumer, what is local",
            lambda told: read_with_kafka_consumer(house.bootstrap, self.starts, self.ends, told),
            self.truth.part(self.starts),
        )
        self._spawn_proxy()
        self._compare(
            "plain consumer, through the proxy",
            lambda told: read_with_kafka_consumer(house.proxy, ZERO, self.ends, told),
        )
        house.stop("proxy")

    def _spawn_gateway(self) -> None:
        self.house.gateway = self._address_of("gateway")

    def _spawn_proxy(self) -> None:
        self.house.proxy = self._address_of("proxy", "--listen", "127.0.0.1:0")

    def _address_of(self, command: str, *arguments: str) -> str:
        process = self.house.spawn(command, command, "--json", *arguments, stdout=subprocess.PIPE)
        assert process.stdout is not None
        line = process.stdout.readline()
        self.house.alive(command)
        if not line:
            raise DemoFailed(f"the {command} did not say where it listens")
        return str(json.loads(line)["address"])

    def _compare(self, name: str, read: Callable[[Update], Records], expected: Records | None = None) -> None:
        """Compare record by record with what the broker held, and by digest per partition and per segment range."""
        expected = expected or self.truth
        with self.screen.step(name, name[0].upper() + name[1:]) as update:
            began = time.monotonic()
            records = read(update)
            seconds = time.monotonic() - began
            different = first_difference(expected, records)
            if different is not None:
                raise DemoFailed(
                    f"{name} differs at {TOPIC}-{different.partition} offset {different.offset}\n"
                    f"  the broker had {different.expected}\n  it read        {different.found}"
                )
            if expected is self.truth:
                for partition, start, end in self._all_ranges():
                    if records.digest(partition, start, end) != expected.digest(partition, start, end):
                        raise DemoFailed(f"{name} differs in {TOPIC}-{partition} offsets {start}..{end - 1}")
            megabytes, digest = records.bytes / 1e6, records.topic_digest()
            self.report.readers[name] = Reader(records.count, digest, round(seconds, 2), round(megabytes, 1))
            update(f"{records.count:,} records, equal", None)

    def _all_ranges(self) -> list[tuple[int, int, int]]:
        ranges = [(p, start, end) for p, parts in self.ranges.items() for start, end in parts]
        return [(p, *WHOLE) for p in range(PARTITIONS)] + ranges

    # --- 5: Spark ------------------------------------------------------------------------------------------------

    def _spark(self) -> None:
        with self.screen.step("spark", "Spark over both tiers") as update:
            update("a session, the digest, the pipeline job", None)
            result = run_spark(self.house, self.ranges, self.out / "flights-by-month.parquet")
            for partition, start, end in self._all_ranges():
                expected = self.truth.digest(partition, start, end)
                if result.digests.get((partition, start, end), (0, ""))[1] != expected:
                    raise DemoFailed(f"Spark differs in {TOPIC}-{partition} offsets {start}..{end - 1}")
            whole = [(p, *result.digests[p, WHOLE[0], WHOLE[1]]) for p in range(PARTITIONS)]
            self.report.readers["spark"] = Reader(
                sum(count for _, count, _ in whole),
                topic_digest(whole),
                round(result.read_seconds, 2),
                round(self.truth.bytes / 1e6, 1),
            )
            self.report.spark_answer = result.answer
            if self.limit is None:
                self._require_answer("Spark's answer", result.answer, "the CSV's", self.report.csv_answer)
            compared = "equal to the CSV's answer" if self.limit is None else "not compared: this is a part of the year"
            update(f"{len(result.answer)} months and carriers, {compared}", None)

    # --- 6: a table ----------------------------------------------------------------------------------------------

    def _table(self) -> None:
        with self.screen.step("table", "The year as an Iceberg table") as update:
            update("typed columns, from the object store", None)
            make_table(self.house)
            update("every row beside the log", None)
            checked = check_table(self.house)
            if checked != self.report.records:
                raise DemoFailed(f"the table has {checked} rows, {self.report.records} were produced")
            update("the question, by DuckDB", None)
            self.report.table = ask_table(self.house)
            self._require_answer(
                "DuckDB's answer from the table", self.report.table.answer, "Spark's", self.report.spark_answer
            )
            update(f"{checked:,} rows, each beside the log; DuckDB's answer is Spark's", None)

    def _require_answer(self, whose: str, answer: list[data.Answer], other: str, expected: list[data.Answer]) -> None:
        if answer != expected:
            first = next(pair for pair in zip_longest(answer, expected) if pair[0] != pair[1])
            raise DemoFailed(f"{whose} is not {other}: {first[0]} instead of {first[1]}")

    # --- 7: the view ---------------------------------------------------------------------------------------------

    def _rebuild_the_view(self) -> None:
        house, report = self.house, self.report
        with self.screen.step("rebuild", "The view, deleted and rebuilt from the topic alone") as update:
            view = house.state / "agent"
            before = house.folder / "view-before"
            view.rename(before)
            self.house.spawn_agent()
            wait_for("the rebuild", 60, lambda: (view / "view" / "CURRENT").exists(), house, "agent")
            wait_for("the agent", 60, lambda: "agent ready" in (house.folder / "agent.log").read_text(), house, "agent")
            house.stop("agent")
            same = house.json("diff", str(before), str(view), accept=(0, 1))
            report.view_digest, report.rebuilt_view_digest = same["digest_one"], same["digest_two"]
            if not same["equal"]:
                raise DemoFailed(f"the rebuilt view differs: {same['differences'][:3]}")
            update("equal; now without one fact", None)
            facts = map(json.loads, house.run("facts", f"{TOPIC}:0", "--json").stdout.splitlines())
            key = next(fact["key"] for fact in facts if fact["fact"] == "SegmentCopyFinished")
            short = house.folder / "view-short"
            house.run("replay", "--out", str(short), "--without", key)
            difference = house.json("diff", str(view), str(short), accept=(0, 1))
            report.withheld_fact_found = [each["key"] for each in difference["differences"]] == [key]
            if not report.withheld_fact_found:
                raise DemoFailed("a view from which one fact was withheld passed for equal")
            update(f"equal, {report.view_digest[:12]}…; one fact withheld: noticed", None)
