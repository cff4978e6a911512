"""The dashboard and the alert rules use only the metrics that a running agent and gateway really expose."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests import promql
from tests.promql import Metric, PromqlError
from tests.runtime.test_metrics import exposed_types, wrong_names
from tests.scenarios.house import House, Running, eventually, get
from tests.test_deploy import parse
from tests.test_docs import ROOT, actions, anchors, section
from tierstate.runtime.metrics import COUNTERS, GAUGES, SECONDS, TALLIES
from tierstate.sandbox.kafka import KafkaSandbox

DEPLOY = ROOT / "deploy"
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]
SCRAPED: list[dict[str, Any]] = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yaml").read_text())[
    "scrape_configs"
]
BOARDS = sorted((DEPLOY / "grafana").glob("*.json"))
TARGET = frozenset({"cluster", "instance", "job"})
"""Labels that the scrape example gives every series."""
OTHERS = {"up": "", "probe_success": "tierstate-ready"}
"""Metrics that are not ours, and the job that a selector of them must name where only one has them."""
CORE = {"row", "stat", "timeseries", "table"}
SEVERITIES = {"critical", "warning", "info"}
LABELS = {"topic": "orders", "partition": "3", "instance": "broker-1:9404", "table": "kafka.orders"}
OTHER_PROGRAMS = {"curl", "journalctl", "kafka-configs.sh", "promtool"}


# --- what is exposed -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Exposed:
    """``jobs``: the metrics of each kind of process, from its own ``/metrics``."""

    jobs: Mapping[str, Mapping[str, Metric]]
    pages: Mapping[str, str]
    """The pages as they were read."""

    def metric_of(self, name: str, matchers: Mapping[str, str]) -> Metric:
        """Return a metric, of one job if a selector names one. Raises KeyError."""
        job = matchers.get("job", "")
        if name in OTHERS:
            if job not in {job["job_name"] for job in SCRAPED} or OTHERS[name] not in ("", job):
                raise KeyError(name)
            return Metric(TARGET)
        if job:
            return self.jobs[job][name]
        return next(metrics[name] for metrics in self.jobs.values() if name in metrics)


def metrics_in(exposition: str) -> dict[str, Metric]:
    """Return metrics with the announced types, and the labels of the samples; without a sample, those of our tables."""
    metrics: dict[str, Metric] = {}
    for family in text_string_to_metric_families(exposition):
        counts = family.type in ("counter", "histogram")
        for sample in family.samples:
            labels = TARGET | frozenset(sample.labels)
            assert metrics.get(sample.name, Metric(labels, counts)).labels == labels, (
                f"{sample.name} has two sets of labels"
            )
            metrics[sample.name] = Metric(labels, counts)
        name = f"{family.name}_total" if family.type == "counter" else family.name
        table = {**COUNTERS, **TALLIES, **GAUGES}.get(name)
        if table is not None:
            declared = Metric(TARGET | frozenset(table[1]), counts)
            assert metrics.setdefault(name, declared) == declared, f"{name} is not what its table says"
    return metrics


@pytest.fixture(scope="module")
def exposed(kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exposed]:
    """Yield the metrics of an agent that copied and trimmed, of a proxy, a gateway with a disk cache and a table."""
    house = House(kafka, tmp_path_factory.mktemp("dashboards") / "house", "dashboards")
    try:
        house.run("init")
        topic = house.create("orders")
        house.append(topic, 3_000)
        with house.agent() as agent:
            gateway, url = house.gateway("--set", "cache.disk=16MiB")
            eventually(lambda: len(house.logs(topic)) == 1)
            eventually(lambda: "tierstate_topic_problems 0.0" in agent.metrics())
            eventually(lambda: get(f"{url}/v1/topics/{topic}/partitions/0/records?offset=0")[0] == 200)
            proxy, _ = house.proxy()
            folder = f"table.folder={house.folder / 'tables'}"
            house.run("table", "create", topic, "--set", folder)
            tables = house.start("table", "follow", "--set", folder)
            eventually(lambda: tables.out.read_text())
            eventually(lambda: "tierstate_table_rows_total{" in of_serving(tables))
            eventually(lambda: list(house.store.glob("_tierstate/*/*/archive/*")))
            of_bucket, _ = house.proxy("--source", "bucket", "--set", f"state_dir={house.folder / 'of-bucket'}")
            pages = {
                "tierstate-agent": agent.metrics(),
                "tierstate-gateway": of_serving(gateway),
                "tierstate-proxy": of_serving(proxy) + of_serving(of_bucket),
                "tierstate-table": of_serving(tables),
            }
            yield Exposed({job: metrics_in(page) for job, page in pages.items()}, pages)
    finally:
        house.close()


def of_serving(running: Running) -> str:
    address = json.loads(running.out.read_text().splitlines()[0])["management"]
    return get(f"http://{address}/metrics")[1].decode()


@pytest.mark.kafka
def test_every_metric_that_is_declared_is_exposed_by_a_process_that_serves(exposed: Exposed) -> None:
    names = {name.removesuffix("_count") for metrics in exposed.jobs.values() for name in metrics}
    assert {*COUNTERS, *TALLIES, *SECONDS, *GAUGES} - names == set()


@pytest.mark.kafka
def test_exposed_metrics_are_in_the_table_of_actions_and_have_names_by_prometheus_rules(
    exposed: Exposed,
) -> None:
    types = {name: kind for page in exposed.pages.values() for name, kind in exposed_types(page).items()}
    assert wrong_names(types) == []
    assert types.keys() == actions().keys()


@pytest.mark.kafka
def test_counters_begin_at_zero_also_by_topic_and_by_chore(exposed: Exposed) -> None:
    """A counter that begins at 1 with its first event is an increase that no rule sees."""
    zero = {line.rpartition(" ")[0] for line in exposed.pages["tierstate-agent"].splitlines() if line.endswith(" 0.0")}
    topic = '{topic="dashboards-orders"}'
    for name in (
        "tierstate_remote_copy_errors_total",
        "tierstate_act_failures_total",
        "tierstate_remote_delete_requests_total",
    ):
        assert name + topic in zero
    for chore in ("archive", "archive cut", "checkpoint", "custody", "look"):
        assert f'tierstate_chore_failures_total{{chore="{chore}"}}' in zero
    assert "tierstate_second_values_total" in zero


# --- alerts ----------------------------------------------------------------------------------------------------------


def by_name(rule: Mapping[str, Any]) -> str:
    return str(rule["alert"])


@pytest.mark.kafka
@pytest.mark.parametrize("rule", RULES, ids=by_name)
def test_an_alert_asks_for_what_is_exposed_and_names_labels_that_its_series_have(
    rule: dict[str, Any], exposed: Exposed
) -> None:
    result = promql.read(rule["expr"], exposed.metric_of)
    assert result.type is promql.Type.VECTOR
    texts = " ".join(rule["annotations"].values())
    assert set(re.findall(r"\$labels\.(\w+)", texts)) <= result.labels
    assert not set(re.findall(r"\$(\w+)", texts)) - {"labels", "value"}


@pytest.mark.parametrize("rule", RULES, ids=by_name)
def test_an_alert_has_a_severity_its_annotations_and_templates_that_prometheus_fills(rule: dict[str, Any]) -> None:
    assert rule.keys() - {"for"} == {"alert", "expr", "labels", "annotations"}
    assert re.fullmatch(r"Tierstate[A-Z]\w+", rule["alert"])
    assert re.fullmatch(r"\d+[mhd]", rule.get("for", "0m"))
    assert rule["labels"].keys() == {"severity"}
    assert rule["labels"]["severity"] in SEVERITIES
    notes = rule["annotations"]
    assert notes.keys() == {"summary", "description", "command", "runbook"}
    for text in (notes["summary"], notes["description"]):
        assert text.count("{{") == text.count("}}")
        for template in re.findall(r"{{(.*?)}}", text):
            assert re.fullmatch(r" (\$labels\.\w+|\$value( \| humanize(1024|Duration)?)?) ", template), template


@pytest.mark.parametrize("rule", RULES, ids=by_name)
def test_an_alert_names_the_command_to_type(rule: dict[str, Any]) -> None:
    typed = re.sub(r"{{ \$labels\.(\w+) }}", lambda label: LABELS[label[1]], rule["annotations"]["command"])
    program, *arguments = shlex.split(typed)
    assert "{" not in typed
    assert program in OTHER_PROGRAMS | {"tierstate"}
    if program == "tierstate":
        parse(arguments)


@pytest.mark.parametrize("rule", RULES, ids=by_name)
def test_a_runbook_is_a_heading_of_a_page_and_speaks_of_the_alert(rule: dict[str, Any]) -> None:
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert anchor in anchors(ROOT / page)
    title = next(
        line.lstrip("# ")
        for line in (ROOT / page).read_text().splitlines()
        if line.startswith("#") and re.sub(r"[^\w\- ]", "", line.lstrip("# ").lower()).replace(" ", "-") == anchor
    )
    assert f"`{rule['alert']}`" in section(page, title)


def test_alerts_have_names_of_their_own_and_the_runbooks_name_no_other() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(set(names)) == len(names) > 20
    assert set(re.findall(r"`(Tierstate[A-Z]\w+)`", (ROOT / "docs" / "operations.md").read_text())) == set(names)


# --- what is scraped -------------------------------------------------------------------------------------------------


def test_the_scrape_example_names_the_cluster_of_every_target_and_loads_the_rules() -> None:
    example = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yaml").read_text())
    assert [(DEPLOY / "prometheus" / name).is_file() for name in example["rule_files"]] == [True]
    for job in SCRAPED:
        assert job.get("metrics_path", "/metrics") == ("/probe" if job["job_name"] == "tierstate-ready" else "/metrics")
        assert all(config["targets"] and config["labels"].keys() == {"cluster"} for config in job["static_configs"])


@pytest.mark.kafka
def test_every_job_of_ours_is_a_kind_of_process_that_exposes_metrics(exposed: Exposed) -> None:
    assert {job["job_name"] for job in SCRAPED} == exposed.jobs.keys() | {"tierstate-ready"}


# --- dashboards ------------------------------------------------------------------------------------------------------


def board_of(path: Path) -> dict[str, Any]:
    board: dict[str, Any] = json.loads(path.read_text())
    return board


def panels_of(path: Path) -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = board_of(path)["panels"]
    return panels


def drawn(path: Path) -> list[dict[str, Any]]:
    return [panel for panel in panels_of(path) if panel["type"] != "row"]


def name_of(path: Path) -> str:
    return path.name


def test_there_is_a_dashboard() -> None:
    assert [path.name for path in BOARDS] == ["tierstate.json"]


@pytest.mark.kafka
@pytest.mark.parametrize("path", BOARDS, ids=name_of)
def test_a_panel_asks_for_what_is_exposed_and_its_legend_for_labels_that_are_there(
    path: Path, exposed: Exposed
) -> None:
    for panel in drawn(path):
        for target in panel["targets"]:
            result = promql.read(target["expr"], exposed.metric_of)
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= result.labels, panel["title"]


@pytest.mark.kafka
@pytest.mark.parametrize("path", BOARDS, ids=name_of)
def test_a_variable_asks_for_a_label_that_is_exposed(path: Path, exposed: Exposed) -> None:
    variables = {variable["name"]: variable for variable in board_of(path)["templating"]["list"]}
    assert list(variables) == ["datasource", "cluster", "topic"]
    for name in ("cluster", "topic"):
        query = variables[name]["query"]["query"]
        match = re.fullmatch(r"label_values\((.+), (\w+)\)", query)
        assert match is not None, query
        assert match[2] in promql.read(match[1], exposed.metric_of).labels


@pytest.mark.kafka
def test_every_metric_of_ours_that_a_process_exposes_is_drawn_or_alarmed_on(exposed: Exposed) -> None:
    expressions = [target["expr"] for path in BOARDS for panel in drawn(path) for target in panel["targets"]]
    expressions += [rule["expr"] for rule in RULES]
    used = {metric for text in expressions for metric in promql.read(text, exposed.metric_of).metrics}
    ours = {name for metrics in exposed.jobs.values() for name in metrics if name in {*COUNTERS, *TALLIES, *GAUGES}}
    assert ours - used == set()


@pytest.mark.parametrize("path", BOARDS, ids=name_of)
def test_a_dashboard_needs_no_plugin_and_every_query_goes_to_the_chosen_data_source(path: Path) -> None:
    board = board_of(path)
    assert board["uid"]
    assert board["schemaVersion"] >= 39
    assert "id" not in board, "an id is given by the Grafana that loads it"
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    for panel in panels_of(path):
        assert panel["type"] in CORE, panel["title"]
    for panel in drawn(path):
        assert panel["datasource"] == chosen
        assert all(target["datasource"] == chosen for target in panel["targets"])


@pytest.mark.parametrize("path", BOARDS, ids=name_of)
def test_panels_do_not_lie_on_each_other_and_are_told_apart(path: Path) -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in panels_of(path):
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]
    assert len({panel["id"] for panel in panels_of(path)}) == len(panels_of(path))
    for panel in drawn(path):
        letters = [target["refId"] for target in panel["targets"]]
        assert letters == sorted(set(letters))


@pytest.mark.kafka
@pytest.mark.parametrize("path", BOARDS, ids=name_of)
def test_every_selector_of_a_panel_shows_the_chosen_cluster_only(path: Path, exposed: Exposed) -> None:
    for panel in drawn(path):
        for target in panel["targets"]:
            jobs: list[str] = []

            def metric_of(name: str, matchers: Mapping[str, str], asked: list[str] = jobs) -> Metric:
                asked.append(name)
                return exposed.metric_of(name, matchers)

            promql.read(target["expr"], metric_of)
            assert target["expr"].count('cluster=~"$cluster"') == len(jobs), panel["title"]


# --- the reader of PromQL itself -------------------------------------------------------------------------------------

KNOWN = {
    "lag": Metric(frozenset({"topic", "partition"})),
    "done_total": Metric(frozenset({"topic", "partition"}), counts=True),
    "took_seconds_bucket": Metric(frozenset({"le"}), counts=True),
}


def known(name: str, matchers: Mapping[str, str]) -> Metric:
    return KNOWN[name]


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ('sum by (topic) (rate(done_total{topic=~"a|b"}[5m])) > 0.5', {"topic"}),
        ("lag and resets(lag[1h]) == 0", {"topic", "partition"}),
        ("(lag unless lag offset 1d) or increase(done_total[1h30m])", {"topic", "partition"}),
        ("sum by (topic) (lag) > on (topic) max by (topic) (lag)", {"topic"}),
        ("histogram_quantile(0.99, sum by (le) (rate(took_seconds_bucket[$__rate_interval])))", set()),
        ("topk(10, lag{})", {"topic", "partition"}),
        ("2 * (1 - sum(lag))", set()),
    ],
)
def test_expressions_that_prometheus_reads_are_read(text: str, labels: set[str]) -> None:
    assert promql.read(text, known).labels == labels


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "missing"),
        ("sum(lag", "missing"),
        ("sum(lag))", "unexpected"),
        ("lag{topic=a}", "missing"),
        ('lag{topic="a"', "missing"),
        ("lag ? 1", "cannot read"),
        ("lag[5]", "missing"),
        ("lag[5m]", "no result"),
        ("lag lag", "unexpected"),
        ("lags", "no metric"),
        ('lag{topics="a"}', "no label"),
        ("sum by (topics) (lag)", "has not"),
        ("sum by (topic) (sum(lag))", "has not"),
        ("rate(lag[5m])", "no counter"),
        ("rate(done_total)", "takes"),
        ("rates(done_total[5m])", "no metric"),
        ("max_over_time(sum(lag)[5m])", "missing"),
        ("lag and 1", "of a number"),
        ("1 > 2", "compared"),
        ("lag / sum by (topic) (lag)", "nothing would match"),
        ("lag > on (level) lag", "which a side has not"),
        ("histogram_quantile(0.5, sum(rate(took_seconds_bucket[5m])))", "without le"),
        ("sum by (topic (lag)", "missing"),
        ("by (topic) sum(lag)", "begins"),
    ],
)
def test_expressions_that_prometheus_refuses_or_never_matches_are_refused(text: str, why: str) -> None:
    with pytest.raises(PromqlError, match=re.escape(why)):
        promql.read(text, known)
