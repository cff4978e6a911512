"""A `House` whose processes a Prometheus scrapes, and the alerts that fire for it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.alerts.prometheus import Labels, Prometheus
from tests.alerts.rules import RULES, expression
from tests.scenarios import house as houses
from tests.scenarios.house import House, Running, eventually


@dataclass
class Watched:
    """One `House` is one cluster for Prometheus. A ``program`` is the command line's own, with a fault put into it."""

    prometheus: Prometheus
    house: House
    addresses: dict[int, str] = field(default_factory=dict)
    _quiet_at: float = 0.0

    @property
    def cluster(self) -> str:
        return self.house.name

    def agent(self, *flags: str, program: str = "") -> Running:
        """Start an agent, wait until it is ready, and scrape it."""
        with started_as(program):
            agent = self.house.start("agent", *flags)
        return self._scraped("tierstate-agent", agent, str(agent.says("agent ready")["management"]))

    def gateway(self, *flags: str, file_bytes: int | None = None) -> tuple[Running, str]:
        """Start a gateway and scrape it. Return it with its URL."""
        return self._serving("gateway", *flags, file_bytes=file_bytes)

    def proxy(self, *flags: str) -> tuple[Running, str]:
        """Start a proxy and scrape it. Return it with its address for Kafka clients."""
        return self._serving("proxy", "--listen", "127.0.0.1:0", *flags)

    def tables(self, *flags: str) -> Running:
        """Start a process that follows tables, and scrape it."""
        return self._serving("table", "follow", *flags)[0]

    def _serving(self, *command: str, file_bytes: int | None = None) -> tuple[Running, str]:
        running = self.house.start(*command, file_bytes=file_bytes)

        def look() -> bool:
            assert running.process.poll() is None, running.err.read_text()
            return bool(running.out.read_text().splitlines())

        eventually(look)
        status = json.loads(running.out.read_text().splitlines()[0])
        return self._scraped(f"tierstate-{command[0]}", running, status["management"]), str(status.get("address", ""))

    def _scraped(self, job: str, running: Running, address: str) -> Running:
        self.prometheus.scrape(job, address, self.cluster)
        self.addresses[running.process.pid] = address
        return running

    def retire(self, running: Running) -> None:
        """Stop the process and its scraping: no alert misses it."""
        self.prometheus.forget(self.addresses[running.process.pid])
        running.stop()

    def quiet(self, *alerts: str) -> None:
        """Wait until none of these alerts fires: the cause of one may happen from now on."""
        firing = set[str]()

        def is_quiet() -> bool:
            nonlocal firing
            firing = set(alerts) & self.firing()
            return not firing

        try:
            eventually(is_quiet)
        except AssertionError as error:
            raise AssertionError(f"not quiet: {sorted(firing)}") from error
        self._quiet_at = time.time()

    def fires(self, alert: str, instead: Mapping[str, str] | None = None) -> list[Labels]:
        """Return the labels of this cluster's series in the alert's shipped expression, at any second since `quiet`."""
        seconds = int(time.time() - self._quiet_at) + 1
        series = self.prometheus.since(expression(alert, instead), seconds)
        return [labels for labels in series if labels.get("cluster", self.cluster) == self.cluster]

    def firing(self) -> set[str]:
        """Return the names of all alerts whose shipped expressions have a series of this cluster now."""
        return {
            alert
            for alert in RULES
            if any(labels.get("cluster") == self.cluster for labels, _ in self.prometheus.ask(expression(alert)))
        }

    def value(self, metric: str) -> float | None:
        """Return the largest sample of this cluster; None if there is none."""
        begin, _, rest = metric.partition("{")
        matchers = rest.rstrip("}")
        selector = f'{begin}{{cluster="{self.cluster}"{"," + matchers if matchers else ""}}}'
        return max((value for _, value in self.prometheus.ask(selector)), default=None)


@contextmanager
def started_as(program: str) -> Iterator[None]:
    """Let commands that start within the block run this program instead of our command line, unless it is empty."""
    own = houses.TIERSTATE
    houses.TIERSTATE = [sys.executable, "-c", program] if program else own
    try:
        yield
    finally:
        houses.TIERSTATE = own
