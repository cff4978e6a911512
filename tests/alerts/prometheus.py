"""A real Prometheus that scrapes every second, and a real Alertmanager, on loopback ports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.alerts.programs import alertmanager_program, program
from tests.scenarios.house import eventually, get
from tierstate.sandbox import tether
from tierstate.sandbox.ports import PortLease

JOBS = ("tierstate-agent", "tierstate-gateway", "tierstate-proxy", "tierstate-table")
READY = "tierstate-ready"
Labels = dict[str, str]


class Prometheus:
    """``address`` answers its HTTP API. `scrape` adds targets and `forget` removes them."""

    def __init__(self, folder: Path, address: str, rules: Path | None, alertmanager: str, probe: str) -> None:
        self.address, self._folder = address, folder
        self._targets: dict[str, list[dict[str, Any]]] = {job: [] for job in (*JOBS, READY)}
        named = {"cluster": "main"}
        through_probe = [
            {"source_labels": ["__address__"], "target_label": "instance"},
            {"source_labels": ["__address__"], "target_label": "__param_target", "replacement": "http://$1/readyz"},
            {"target_label": "__address__", "replacement": probe},
        ]
        config: dict[str, Any] = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)] if rules else [],
            "scrape_configs": [self._job(job) for job in JOBS],
        }
        if probe:
            ready = {"metrics_path": "/probe", "params": {"module": ["http_2xx"]}, "relabel_configs": through_probe}
            config["scrape_configs"].append(self._job(READY) | ready)
        if alertmanager:
            config["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [alertmanager], "labels": named}]}]}
        folder.mkdir(parents=True)
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
        for job in self._targets:
            self._write(job)

    def _job(self, job: str) -> dict[str, Any]:
        files = [str(self._folder / f"{job}.json")]
        return {"job_name": job, "file_sd_configs": [{"files": files, "refresh_interval": "1s"}]}

    def _write(self, job: str) -> None:
        fresh = self._folder / f"{job}.fresh"
        fresh.write_text(json.dumps(self._targets[job]))
        fresh.rename(self._folder / f"{job}.json")

    def scrape(self, job: str, address: str, cluster: str = "main") -> None:
        """Add this address to the targets of the job, and return when it was scraped once."""
        for name in (job, READY):
            target = {"targets": [address], "labels": {"cluster": cluster}}
            if target not in self._targets[name]:
                self._targets[name].append(target)
                self._write(name)
        eventually(lambda: self.ask(f'up{{job="{job}",instance="{address}",cluster="{cluster}"}} == 1'))

    def forget(self, address: str) -> None:
        """Remove this target from every job: it was taken out of service."""
        for job, targets in self._targets.items():
            self._targets[job] = [target for target in targets if address not in target["targets"]]
            self._write(job)

    def ask(self, expression: str) -> list[tuple[Labels, float]]:
        """Return the answer of an instant query: labels and value of each series."""
        query = urllib.parse.urlencode({"query": expression})
        answer = json.loads(get(f"http://{self.address}/api/v1/query?{query}")[1])
        assert answer["status"] == "success", f"{expression}: {answer}"
        data = answer["data"]
        if data["resultType"] == "scalar":
            return [({}, float(data["result"][1]))]
        return [(series["metric"], float(series["value"][1])) for series in data["result"]]

    def since(self, expression: str, seconds: int) -> list[Labels]:
        """Return the labels of the series that this expression had at any of the last ``seconds`` seconds."""
        return [labels for labels, _ in self.ask(f"last_over_time(({expression})[{seconds}s:1s])")]

    def alerts(self) -> list[dict[str, Any]]:
        """Return the alerts of the loaded rules that are pending or firing."""
        alerts = json.loads(get(f"http://{self.address}/api/v1/alerts")[1])["data"]["alerts"]
        assert isinstance(alerts, list)
        return alerts


@contextmanager
def running(folder: Path, command: list[str | Path], address: str, path: str) -> Iterator[None]:
    """Run a server until the block ends, once it answers at this path. It dies with this process."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log").open("wb") as log:
        tethered = [sys.executable, tether.__file__, str(os.getpid()), *map(str, command)]
        process = subprocess.Popen(tethered, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:

        def answers() -> bool:
            assert process.poll() is None, (folder / "log").read_text()[-2000:]
            try:
                return get(f"http://{address}{path}")[0] == 200
            except OSError:
                return False

        eventually(answers)
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def free_address() -> Iterator[str]:
    ports = PortLease()
    try:
        yield f"127.0.0.1:{ports.take()}"
    finally:
        ports.release()


@contextmanager
def prometheus(
    folder: Path, rules: Path | None = None, alertmanager: str = "", probe: str = ""
) -> Iterator[Prometheus]:
    with free_address() as address:
        server = Prometheus(folder / "prometheus", address, rules, alertmanager, probe)
        command: list[str | Path] = [
            program("prometheus"),
            f"--config.file={folder / 'prometheus' / 'prometheus.yaml'}",
            f"--storage.tsdb.path={folder / 'prometheus' / 'data'}",
            f"--web.listen-address={address}",
        ]
        with running(folder / "prometheus", command, address, "/-/ready"):
            yield server


@contextmanager
def prober(folder: Path) -> Iterator[str]:
    """Run Prometheus' blackbox_exporter with its module http_2xx; yield its address."""
    (folder / "prober").mkdir(parents=True)
    (folder / "prober" / "blackbox.yaml").write_text(
        yaml.safe_dump({"modules": {"http_2xx": {"prober": "http", "timeout": "5s"}}})
    )
    with free_address() as address:
        flags = ["--config.file=blackbox.yaml", f"--web.listen-address={address}"]
        command: list[str | Path] = [program("prometheus-blackbox-exporter"), *flags]
        with running(folder / "prober", command, address, "/-/healthy"):
            yield address


@contextmanager
def alertmanager(folder: Path) -> Iterator[str]:
    """Run an Alertmanager that notifies no receiver; yield its address."""
    (folder / "alertmanager").mkdir(parents=True)
    route: Mapping[str, Any] = {"receiver": "nobody", "group_wait": "1s", "group_interval": "1s"}
    (folder / "alertmanager" / "alertmanager.yaml").write_text(
        yaml.safe_dump({"route": route, "receivers": [{"name": "nobody"}]})
    )
    with free_address() as address:
        flags = ["--config.file=alertmanager.yaml", "--cluster.listen-address=", f"--web.listen-address={address}"]
        command: list[str | Path] = [alertmanager_program(), *flags, "--storage.path=data"]
        with running(folder / "alertmanager", command, address, "/-/ready"):
            yield address
