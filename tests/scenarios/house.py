"""tierstate as people run it: the program's own commands, as processes, next to a real broker.

One `House` is one settings file: topics named after it, a tier-state topic, a store folder and a state folder of its
own. All its processes are stopped by `close`, and die with the test run however that ends.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.scenarios import forked
from tierstate.sandbox import tether
from tierstate.sandbox.kafka import KafkaSandbox

TIERSTATE = [sys.executable, "-m", "tierstate.cli.main"]
SEGMENT_BYTES = 100_000
PATIENCE_S = 90.0
BETWEEN_LOOKS_S = 0.1

Done = subprocess.CompletedProcess[str]


@dataclass
class Running:
    """A process that stays; its stdout and stderr are files."""

    process: subprocess.Popen[bytes]
    out: Path
    err: Path

    def says(self, what: str) -> dict[str, Any]:
        """Return the line of its JSON log with this event, once it is there."""

        def look() -> dict[str, Any] | None:
            assert self.process.poll() is None, f"it ended with {self.process.returncode}:\n{self.err.read_text()}"
            return next(iter(self.events(what)), None)

        entry: dict[str, Any] = eventually(look)
        return entry

    def events(self, what: str) -> list[dict[str, Any]]:
        """Return the lines of its JSON log with this event so far."""
        lines = [json.loads(line) for line in self.err.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line.get("event") == what]

    def said(self) -> dict[str, Any]:
        """Return the first line of its JSON output; a gateway and a proxy print their address there."""
        document: dict[str, Any] = json.loads(self.out.read_text().splitlines()[0])
        return document

    def metrics(self) -> str:
        """Return the metrics of an agent."""
        answer: bytes = get(f"http://{self.says('agent ready')['management']}/metrics")[1]
        return answer.decode()

    def stop(self, number: signal.Signals = signal.SIGTERM, seconds: float = 15.0) -> int:
        """Stop the process; return its exit code. Fails the test, with all stacks, when it does not end in time."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)
            self.process.wait()
            raise AssertionError(f"it did not end in {seconds} s:\n{self.err.read_text()}") from None


_NAMES: WeakKeyDictionary[KafkaSandbox, set[str]] = WeakKeyDictionary()


@dataclass
class House:
    """``name`` begins the names of its topics. A 2 is added where a house on this cluster has this name."""

    kafka: KafkaSandbox
    folder: Path
    name: str
    _running: list[Running] = field(default_factory=list)

    def __post_init__(self) -> None:
        taken = _NAMES.setdefault(self.kafka, set())
        while self.name in taken:
            self.name += "2"
        taken.add(self.name)
        self.store = self.folder / "store"
        self.config = self.folder / "tierstate.toml"
        self.tier_topic = f"_tiers-{self.name}"
        self.store.mkdir(parents=True)
        self.config.write_text(
            f'state_dir = "{self.folder / "state"}"\n'
            f"[kafka]\n{self.kafka_settings(self.kafka.client_config)}"
            f'[store]\nurl = "{self.store.as_uri()}"\n'
            f'[tier_state]\ntopic = "{self.tier_topic}"\npartitions = 2\nreplication_factor = 1\n'
            f'[tiering]\ninclude = ["{self.name}-.*"]\n'
            f'[agent]\nlog_dirs = ["{self.log_dir}"]\n'
            f'[prefix]\nheartbeat = "1s"\n'
            f'[archive]\npartial_after = "0s"\n'
            f'[trim]\ndelay = "0s"\n[management]\nlisten = "127.0.0.1:0"\n[gateway]\nlisten = "127.0.0.1:0"\n'
        )

    def kafka_settings(self, config: Mapping[str, str]) -> str:
        """Return settings in which a secret stands by reference only, as is required."""
        lines = {name: f'"{value}"' for name, value in config.items()}
        if "sasl.password" in config:
            secret = self.folder / f"password-of-{config['sasl.username']}"
            secret.write_text(config["sasl.password"])
            lines["sasl.password"] = f'{{ file = "{secret}" }}'
        return "".join(f'"{name}" = {value}\n' for name, value in lines.items())

    def as_user(self, name: str, password: str) -> House:
        """Return the same house with another user's credentials."""
        other, client = copy(self), self.kafka.client_config
        other.config = self.folder / f"{name}.toml"
        before = self.kafka_settings(client)
        after = self.kafka_settings(client | {"sasl.username": name, "sasl.password": password})
        settings = self.config.read_text().replace(before, after)
        other.config.write_text(settings.replace('/state"', f'/state-{name}"'))
        return other

    @property
    def log_dir(self) -> Path:
        return self.kafka.brokers[0].log_dir

    # --- commands ------------------------------------------------------------------------------------------------

    def run(self, *arguments: str, code: int = 0) -> Done:
        """Run a command to its end. Fails the test when its exit code is another, or a stack trace is shown."""
        done = run(*arguments, "--config", str(self.config))
        assert done.returncode == code, f"{arguments} ended with {done.returncode}: {done.stdout}{done.stderr}"
        return done

    def json(self, *arguments: str, code: int = 0) -> Any:
        """Return the command's one JSON document."""
        return json.loads(self.run(*arguments, "--json", code=code).stdout)

    def lines(self, *arguments: str) -> list[dict[str, Any]]:
        """Return the command's JSON objects, one a line."""
        return [json.loads(line) for line in self.run(*arguments, "--json").stdout.splitlines()]

    def start(self, *arguments: str, file_bytes: int | None = None) -> Running:
        """Start a command that stays. ``file_bytes`` limits the files that it writes, as a full disk does."""
        at = len(self._running)
        out, err = self.folder / f"{at}-{arguments[0]}.out", self.folder / f"{at}-{arguments[0]}.err"

        def limits() -> None:
            if file_bytes is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))

        command = [*TIERSTATE, *arguments, "--json", "--config", str(self.config)]
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, tether.__file__, str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                preexec_fn=limits,
                env={
                    **environment("TIERSTATE_DEBUG"),
                    "PYTHONFAULTHANDLER": "1",
                },  # all stacks, when `Running.stop` gives up
            )
        running = Running(process, out, err)
        self._running.append(running)
        return running

    @contextmanager
    def agent(self, *flags: str, file_bytes: int | None = None) -> Iterator[Running]:
        """Yield a ready agent, which is stopped at the end of the block."""
        running = self.start("agent", *flags, file_bytes=file_bytes)
        running.says("agent ready")
        try:
            yield running
        finally:
            running.stop()

    def gateway(self, *flags: str) -> tuple[Running, str]:
        """Start a gateway; return it and its URL."""
        return self._serving("gateway", *flags)

    def proxy(self, *flags: str) -> tuple[Running, str]:
        """Start a proxy; return it and the address for clients' ``bootstrap.servers``."""
        return self._serving("proxy", "--listen", "127.0.0.1:0", *flags)

    def _serving(self, command: str, *flags: str) -> tuple[Running, str]:
        running = self.start(command, *flags)

        def look() -> str | None:
            assert running.process.poll() is None, running.err.read_text()
            return str(running.said()["address"]) if running.out.read_text().splitlines() else None

        return running, str(eventually(look))

    def close(self) -> None:
        for running in self._running:
            if running.process.poll() is None:
                running.process.kill()
                running.process.wait()

    # --- what is on the broker and in the store ------------------------------------------------------------------

    def create(self, topic: str, partitions: int = 1, **config: str) -> str:
        """Create a topic whose local tier may go once it is copied; return its full name. ``_`` stands for dots."""
        settings = {"internal.segment.bytes": str(SEGMENT_BYTES), "retention.ms": "-1", "local.retention.bytes": "0"}
        topic_config = settings | {name.replace("_", "."): value for name, value in config.items()}
        if self.kafka.release.startswith("3."):  # segment.bytes may be as small there
            topic_config["segment.bytes"] = topic_config.pop("internal.segment.bytes")
        name = f"{self.name}-{topic}"
        admin: Any = AdminClient({**self.kafka.client_config, "log_level": 0})
        admin.create_topics([NewTopic(name, partitions, 1, config=topic_config)], operation_timeout=30)[name].result(30)
        return name

    def append(self, topic: str, records: int, partition: int = 0, first: int = 0) -> None:
        """Append records ``first``… of 120 bytes, in batches small enough to fill several segments."""
        config = {**self.kafka.client_config, "log_level": 0, "batch.size": 10_000}
        producer: Any = Producer(config | {"enable.idempotence": True})  # otherwise a retry could change their order
        for number in range(first, first + records):
            producer.produce(topic, value=b"%0120d" % number, key=b"k%d" % (number % 7), partition=partition)
            producer.poll(0)
        assert producer.flush(60) == 0

    def logs(self, topic: str, partition: int = 0) -> list[Path]:
        """Return the segment files on the broker's disk, oldest first."""
        return sorted((self.log_dir / f"{topic}-{partition}").glob("*.log"))

    def manifests(self, topic: str = "") -> list[Path]:
        """Return the manifests in the store."""
        return sorted(path for path in self.store.rglob("*.rsm-manifest") if topic in str(path))

    def objects(self) -> list[Path]:
        """Return all objects of segments that readers of the store could see; not the archive and the checkpoints."""
        files = (path for path in self.store.rglob("*") if path.is_file())
        others = {".tierstate-tmp", "_tierstate", "_tierstate_backup"}
        return sorted(path for path in files if not others & set(path.parts))

    def last_error(self, topic: str) -> str:
        """Return the last error that `describe` shows of partition 0; empty while no agent leads it, or all is well."""
        agent = self.json("describe", f"{topic}:0")[0]["agent"]
        return str(agent.get("last_error") or "") if isinstance(agent, dict) else ""

    def holds(self, topic: str, records: int, partition: int = 0) -> bool:
        """Return whether `consume` reads back exactly the appended records: none lost, none twice, no others."""
        read = self.run("consume", f"{topic}:{partition}", "--format", "%o %k %s\\n").stdout.splitlines()
        return read == [f"{number} k{number % 7} {number:0120d}" for number in range(records)]

    def digests(self, topic: str, *flags: str) -> list[tuple[int, int, str]]:
        """Return partition, records and digest, as one reader sees them."""
        digests_read = self.json("digest", topic, *flags)["partitions"]
        return [(each["partition"], each["records"], each["digest"]) for each in digests_read]


@contextmanager
def opened_house(kafka: KafkaSandbox, folder: Path, name: str) -> Iterator[House]:
    """Yield a house with a tier-state topic; its processes end with the block."""
    house = House(kafka, folder, name)
    try:
        house.run("init")
        yield house
    finally:
        house.close()


def environment(*kept: str) -> dict[str, str]:
    """Return an environment without the settings of the person who runs the tests, except ``kept``."""
    return {name: value for name, value in os.environ.items() if name in kept or not name.startswith("TIERSTATE_")}


def run(*arguments: str, seconds: float = 240.0) -> Done:
    """Run a command without settings of its own. Fails the test when it hangs or shows a stack trace."""
    done = forked.command([str(each) for each in arguments], environment(), seconds)  # as a shell passes them
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    assert done.returncode != 70, done.stderr
    return done


def side_by_side(calls: Sequence[Callable[[], Done]], at_once: int = 2) -> list[Done]:
    with ThreadPoolExecutor(at_once) as pool:
        return [call.result() for call in [pool.submit(call) for call in calls]]


def get(url: str, accept: str = "*/*") -> tuple[int, bytes]:
    """Return status and body, also of a refusal."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept}), timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def eventually(look: Callable[[], Any], seconds: float = PATIENCE_S) -> Any:
    """Return the first true result of ``look``. Fails the test when it takes too long."""
    began = time.monotonic()
    deadline = began + seconds
    while not (result := look()):
        now = time.monotonic()
        assert now < deadline, "it did not come about"
        time.sleep(min(max(BETWEEN_LOOKS_S, now - began), 1.0))  # a look may be a command, which takes time of others
        began = time.monotonic()
    return result
