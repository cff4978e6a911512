"""An hour's healthy life in minutes: no alert fires, the dashboard shows data; then five alerts reach an Alertmanager.

A real Prometheus evaluates the shipped rules. Their `for` is 10 times shorter, as all times are here.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.alerts.prometheus import alertmanager, free_address, prober, prometheus
from tests.alerts.rules import DEPLOY, FILE
from tests.alerts.watched import Watched
from tests.broker.beheading import alter
from tests.scenarios.house import House, Running, eventually, get
from tests.scenarios.test_outages import flip
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = [pytest.mark.alerts, pytest.mark.kafka]
RECORDS, BACKLOG, PARTITIONS = 2_500, 10_000, 500
FASTER = 10
SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
BOARD = json.loads((DEPLOY / "grafana" / "tierstate.json").read_text())
ASKED = [target["expr"] for panel in BOARD["panels"] for target in panel.get("targets", ())]


def faster_rules() -> str:
    """Return the shipped rules with shorter times before an alert fires."""
    rules = yaml.safe_load(FILE.read_text())
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        if "for" in rule:
            rule["for"] = f"{int(rule['for'][:-1]) * SECONDS[rule['for'][-1]] // FASTER}s"
    return yaml.safe_dump(rules)


@dataclass
class Life:
    kafka: KafkaSandbox
    watched: Watched
    alertmanager: str
    listens: str
    """The address of this broker's agents, one after the other."""
    agent: Running
    url: str
    proxy: Running
    topic: str
    deleted: str = ""

    @property
    def house(self) -> House:
        return self.watched.house

    @cached_property
    def admin(self) -> Any:
        return AdminClient({**self.kafka.client_config, "log_level": 0})

    def caught_up(self) -> bool:
        return len(self.house.logs(self.topic)) == 1

    def lives(self) -> None:
        """Do what happens in an hour without faults."""
        house, written = self.house, RECORDS
        assert get(f"{self.url}/v1/topics/{self.topic}/partitions/0/records?offset=0")[0] == 200
        for _ in range(3):
            self.agent.stop()
            self.agent = self.watched.agent("--set", f"management.listen={self.listens}")
        self.kafka.stop(0)
        self.kafka.start(0)
        house.append(self.topic, RECORDS, first=written)
        written += RECORDS
        eventually(self.caught_up)
        self.deleted = house.create("large", PARTITIONS)
        for partition in range(0, PARTITIONS, 50):
            house.append(self.deleted, RECORDS // 2, partition)
        begun = f'tierstate_terms_started_total{{topic="{self.deleted}"}}'
        eventually(lambda: (self.watched.value(begun) or 0) >= PARTITIONS // 50)
        house.run("pause", self.topic)
        house.append(self.topic, BACKLOG, first=written)
        eventually(lambda: self.watched.value(f'tierstate_remote_copy_lag_segments{{topic="{self.topic}"}}'))
        house.run("resume", self.topic)
        self.admin.delete_topics([self.deleted], operation_timeout=60)[self.deleted].result(60)
        eventually(self.caught_up)
        steps = f'tierstate_custodian_steps_total{{topic="{self.deleted}"}}'
        eventually(lambda: self.watched.value(steps), 150)
        eventually(lambda: not self.pending() - {("TierstateTopicMissing", self.deleted)}, 150)

    def pending(self) -> set[tuple[str, str]]:
        """Return name and topic of every alert that is pending or fires now."""
        labels = [alert["labels"] for alert in self.watched.prometheus.alerts()]
        return {(names["alertname"], names.get("topic", "")) for names in labels}

    def fired(self) -> set[tuple[str, str]]:
        """Return name and topic of every alert that fires or has fired."""
        series = self.watched.prometheus.ask('max_over_time(ALERTS{alertstate="firing"}[30m])')
        return {(labels["alertname"], labels.get("topic", "")) for labels, _ in series}

    def reached(self, alert: str) -> dict[str, Any] | None:
        """Return the alert as Alertmanager has it, or None if it did not arrive."""
        alerts = json.loads(get(f"http://{self.alertmanager}/api/v2/alerts")[1])
        return next((one for one in alerts if one["labels"]["alertname"] == alert), None)


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    folder = tmp_path_factory.mktemp("life")
    (folder / "rules.yaml").write_text(faster_rules())
    with ExitStack() as opened:
        kafka = opened.enter_context(KafkaSandbox())
        house = House(kafka, folder / "house", "main")
        opened.callback(house.close)
        with house.config.open("a") as settings:
            settings.write(f'[table]\nfolder = "{house.folder / "tables"}"\ncommit_interval = "0s"\n')
        house.run("init")
        topic = house.create("orders", retention_ms="604800000")
        house.create("compacted", cleanup_policy="compact")
        house.append(topic, RECORDS)
        house.run("table", "create", topic)
        listens = opened.enter_context(free_address())
        first = house.start("agent", "--set", f"management.listen={listens}")
        first.says("agent ready")
        to, probe = opened.enter_context(alertmanager(folder)), opened.enter_context(prober(folder))
        scrapes = opened.enter_context(prometheus(folder, folder / "rules.yaml", to, probe))
        scrapes.scrape("tierstate-agent", listens, house.name)
        watched = Watched(scrapes, house)
        _, url = watched.gateway("--set", "cache.disk=16MiB")
        proxy, at = watched.proxy()
        watched.tables()
        eventually(lambda: len(house.logs(topic)) == 1)
        eventually(lambda: any(house.store.glob("**/archive/**/*")))
        watched.proxy("--source", "bucket")
        config = {"bootstrap.servers": at, "group.id": "healthy", "enable.auto.commit": False, "log_level": 0}
        consumer: Any = Consumer(config)
        consumer.assign([TopicPartition(topic, 0, 0)])
        eventually(lambda: consumer.consume(100, 1))
        consumer.close()
        yield Life(kafka, watched, to, listens, first, url, proxy, topic)


def test_no_alert_fires_in_a_healthy_life_but_for_the_topic_that_was_deleted(life: Life) -> None:
    life.lives()
    assert life.fired() <= {("TierstateTopicMissing", life.deleted)}


def test_the_rules_are_evaluated_without_an_error(life: Life) -> None:
    groups = json.loads(get(f"http://{life.watched.prometheus.address}/api/v1/rules")[1])["data"]["groups"]
    assert [rule["name"] for group in groups for rule in group["rules"] if rule["health"] != "ok"] == []


@pytest.mark.parametrize("asked", ASKED)
def test_an_expression_of_the_dashboard_returns_data(asked: str, life: Life) -> None:
    """A panel that counts errors has none to count here: the metrics that it reads are there."""
    shown = {"$cluster": life.watched.cluster, "$topic": ".*", "$__rate_interval": "5m"}
    for variable, value in shown.items():
        asked = asked.replace(variable, value)
    assert life.watched.prometheus.since(re.sub(r" >= 3\b", "", asked), 900)


def test_five_alerts_reach_an_alertmanager_with_what_a_person_needs(life: Life) -> None:
    house, gap = life.house, life.house.create("gap")
    house.append(gap, RECORDS)
    eventually(lambda: len(house.logs(gap)) == 1)
    house.run("pause", gap)
    house.append(gap, RECORDS, first=RECORDS)
    place = TopicPartition(gap, 0, RECORDS + 1_500)
    life.admin.delete_records([place])[place].result(30)
    alter(life.admin, house.tier_topic, "max.compaction.lag.ms", "9223372036854775807")
    damaged = sorted(path for path in house.store.rglob("*.log") if life.topic in str(path))[1]
    flip(damaged, 300)
    first = int(damaged.name[:20])
    eventually(lambda: get(f"{life.url}/v1/topics/{life.topic}/partitions/0/records?offset={first}")[0] == 500)
    life.proxy.stop(signal.SIGKILL)
    alerts = ("TierstateGap", "TierstateTopicDrifted", "TierstateReadersMeetDamage", "TierstateProxySilent")
    reached = [eventually(partial(life.reached, alert), 180) for alert in alerts]
    life.agent.stop(signal.SIGKILL)
    reached.append(eventually(partial(life.reached, "TierstateAgentSilent"), 120))
    for alert in reached:
        assert alert["labels"].keys() >= {"severity", "cluster"}
        assert alert["annotations"].keys() == {"summary", "description", "command", "runbook"}
        assert "{{" not in json.dumps(alert["annotations"])
        assert gap in alert["annotations"]["summary"] or alert["labels"]["alertname"] != "TierstateGap"
