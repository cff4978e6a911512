"""The chart: it lints, renders what Kubernetes accepts and Pod Security "restricted" admits, and is the one source."""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.chart import CHART, RELEASE, ROOT, documents, helm, nonconforming, patched_brokers, pods, render
from tests.deploy.raw import manifests
from tests.deploy.restricted import violations
from tests.test_deploy import parse
from tierstate.runtime.settings import needed_by_agent, require
from tierstate.runtime.settings_load import load_settings

# helm is compiled at the first use on a machine
pytestmark = [pytest.mark.extended, pytest.mark.timeout(3600)]
EVERYTHING = CHART / "ci" / "everything.yaml"
FETCHING = ("--values", EVERYTHING, "--set", "agent.source=fetch")
CASES = {path.stem: ("--values", path) for path in sorted((CHART / "ci").glob("*.yaml"))} | {
    "everything-fetch": FETCHING
}
ADDRESSES = {"POD_NAME": "kafka-0", "POD_NAMESPACE": "events", "POD_IP": "10.0.0.7"}
SECRETS = dict.fromkeys(("KAFKA_USERNAME", "KAFKA_PASSWORD", "CATALOG_TOKEN"), "of a secret")


every_case = pytest.mark.parametrize("values", CASES.values(), ids=CASES)


def objects(*arguments: str | Path, release: str = "tierstate") -> list[dict[str, Any]]:
    """Return what is installed, and in place of the patch's ConfigMap the brokers with the patch."""
    found = documents(render(*arguments, release=release))
    patches = [each for each in found if "agent.yaml" in each.get("data", {})]
    return [*found, *(patched_brokers(yaml.safe_load(each["data"]["agent.yaml"])) for each in patches)]


def of_kind(kind: str, found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in found if each["kind"] == kind}


def environment(container: dict[str, Any]) -> dict[str, str]:
    """Return the variables of ours, with ``$(NAME)`` replaced as Kubernetes does."""
    found: dict[str, str] = {}
    for each in container["env"]:
        text = each["value"] if "value" in each else ADDRESSES.get(each["name"], "of a secret")
        found[each["name"]] = re.sub(r"\$\((\w+)\)", lambda match: found[match[1]], text)
    return found


@every_case
def test_helm_finds_nothing_to_mend(values: tuple[str | Path, ...]) -> None:
    done = helm("lint", "--kube-version", RELEASE, "--strict", "--quiet", CHART, *values)
    assert done.returncode == 0, done.stdout + done.stderr


@every_case
def test_kubernetes_knows_every_field(values: tuple[str | Path, ...], tmp_path: Path) -> None:
    assert nonconforming(yaml.safe_dump_all(objects(*values)), tmp_path) == ""


def test_a_field_that_kubernetes_does_not_know_is_noticed(tmp_path: Path) -> None:
    text = render("--values", EVERYTHING)
    for old, new in (
        ("maxUnavailable: 1", "maxUnavailabel: 1"),
        ("readOnlyRootFilesystem: true", "readOnlyRootFileSystem: true"),
        ("interval: 30s", "intervall: 30s"),
        ("containerPort: 8443", 'containerPort: "8443"'),
    ):
        assert old in text
        assert nonconforming(text.replace(old, new), tmp_path) != ""


@every_case
def test_pod_security_restricted_admits_every_pod(values: tuple[str | Path, ...]) -> None:
    found = pods(objects(*values))
    assert found
    assert {name: violations(pod) for name, pod in found.items() if violations(pod)} == {}
    for pod in found.values():
        ours = [each for each in pod["containers"] if each["name"] != "kafka"]
        assert [each["securityContext"]["readOnlyRootFilesystem"] for each in ours] == [True]


@every_case
def test_every_process_runs_a_command_that_exists_with_settings_that_load(
    values: tuple[str | Path, ...], tmp_path: Path
) -> None:
    found = objects(*values)
    file = ROOT / "deploy" / "production.toml"
    for each in of_kind("ConfigMap", found).values():
        if "tierstate.toml" in each["data"]:
            file = tmp_path / "tierstate.toml"
            file.write_text(each["data"]["tierstate.toml"])
    for pod in pods(found).values():
        container = pod["containers"][-1]
        parse(container["args"])
        variables = {key: text for key, text in environment(container).items() if key.startswith("TIERSTATE_")}
        del variables["TIERSTATE_CONFIG"]
        settings = load_settings(file, (), variables | SECRETS)
        assert (settings.management.listen is not None) is (container["args"] != ["init"])
        needed = {settings.kafka.get("ssl.ca.location")}
        if container["args"] == ["agent"]:
            assert (settings.agent.source == "fetch") is (container["name"] == "agent")
            require(settings, *needed_by_agent(settings))
        if container["args"] == ["gateway"]:
            tls, auth = settings.gateway.tls, settings.gateway.auth
            needed |= {str(path) for path in (tls.certificate, tls.key, auth.tokens) if path}
        if container["args"] == ["proxy"]:
            needed |= {str(path) for path in (settings.proxy.tls.certificate, settings.proxy.tls.key) if path}
        (volume,) = [each for each in pod["volumes"] if each["name"] == "tierstate-settings"]
        secrets = [each["secret"] for each in volume["projected"]["sources"] if "secret" in each]
        there = {f"/etc/tierstate/{item['path']}" for secret in secrets for item in secret["items"]}
        assert needed - {None} <= there


@every_case
def test_selectors_find_the_pods_that_they_are_for(values: tuple[str | Path, ...]) -> None:
    found = objects(*values)
    labels = {
        name: each["spec"]["template"]["metadata"]["labels"]
        for name, each in (of_kind("Deployment", found) | of_kind("Job", found)).items()
    }
    selectors = {
        f"{each['kind']} {each['metadata']['name']}": each["spec"].get("podSelector", each["spec"].get("selector"))
        for each in found
        if each["kind"] in ("Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service")
    }
    for name, selector in selectors.items():
        wanted = selector.get("matchLabels", selector)
        owners = [owner for owner, each in labels.items() if wanted.items() <= each.items()]
        component = name.split()[1].removeprefix("tierstate-").removesuffix("-management")
        if component != "agent" or "tierstate-agent" in labels:  # the brokers' pods are not the chart's
            assert [owner.removeprefix("tierstate-").split("-")[0] for owner in owners] == [component], name
    for owner, pod in pods(found).items():
        for each in pod.get("topologySpreadConstraints", ()):
            assert each["labelSelector"]["matchLabels"] == labels[owner.split()[1]]


def test_two_releases_in_one_namespace_share_no_name() -> None:
    keys = [
        {(each["kind"], each["metadata"]["name"]) for each in documents(render("--values", EVERYTHING, release=name))}
        for name in ("tierstate", "other")
    ]
    assert keys[0] & keys[1] == set()


def test_every_port_of_a_service_is_let_in_and_is_a_port_of_the_pod() -> None:
    found = objects("--values", EVERYTHING)
    policies, deployments = of_kind("NetworkPolicy", found), of_kind("Deployment", found)
    for name in ("tierstate-gateway", "tierstate-proxy"):
        (container,) = deployments[name]["spec"]["template"]["spec"]["containers"]
        ports = {each["name"]: each["containerPort"] for each in container["ports"]}
        exposed = {ports[each["targetPort"]] for each in of_kind("Service", found)[name]["spec"]["ports"]}
        clients, management = policies[name]["spec"]["ingress"]
        assert {each["port"] for each in clients["ports"]} == exposed == set(ports.values()) - {ports["tierstate"]}
        assert clients["from"] == [{"namespaceSelector": {"matchLabels": {"reads": "kafka"}}}]
        assert [each["port"] for each in management["ports"]] == ["tierstate"]
        assert management["from"], "the management port has no authentication"
    assert {name for name, each in policies.items() if "ingress" not in each["spec"]} == {"tierstate-init"}


def test_the_pods_of_the_release_may_ask_agents_that_fetch() -> None:
    """Gateways show what an agent answers, and agents ask each other; facts have the addresses of the pods."""
    found = objects(*FETCHING)
    (rule,) = of_kind("NetworkPolicy", found)["tierstate-agent"]["spec"]["ingress"]
    assert [each["port"] for each in rule["ports"]] == ["tierstate"]
    monitoring, ours = rule["from"]
    assert "namespaceSelector" in monitoring
    for name in ("tierstate-agent", "tierstate-gateway"):
        labels = of_kind("Deployment", found)[name]["spec"]["template"]["metadata"]["labels"]
        assert ours["podSelector"]["matchLabels"].items() <= labels.items()


def test_agents_are_in_the_brokers_pods_or_in_their_own() -> None:
    for arguments, patched in (((), True), (FETCHING, False), (("--set", "agent.patch=false"), None)):
        found = documents(render(*arguments))
        assert ("tierstate-agent-patch" in of_kind("ConfigMap", found)) is (patched is True)
        assert ("tierstate-agent" in of_kind("Deployment", found)) is (patched is False)


@pytest.mark.parametrize(
    ("spool", "state", "limit"), [("8Gi", "4Gi", 12 << 30), ("500M", "1Gi", 500_000_000 + (1 << 30)), ("7", "9", 16)]
)
def test_the_volume_of_an_agent_holds_its_spool_and_its_view(spool: str, state: str, limit: int) -> None:
    found = objects(*FETCHING, "--set-string", f"agent.spool={spool},agent.stateSize={state}")
    pod = pods(found)["Deployment tierstate-agent"]
    (volume,) = [each for each in pod["volumes"] if each["name"] == "state"]
    settings = load_settings(
        None, (), {"TIERSTATE_AGENT__SPOOL": environment(pod["containers"][0])["TIERSTATE_AGENT__SPOOL"]}
    )
    assert volume["emptyDir"]["sizeLimit"] == limit
    assert settings.agent.spool < limit


def test_one_replica_can_be_drained_and_more_are_drained_one_by_one() -> None:
    assert of_kind("PodDisruptionBudget", objects("--values", CHART / "ci" / "minimal.yaml")) == {}
    budgets = of_kind("PodDisruptionBudget", objects("--values", EVERYTHING))
    assert {name: each["spec"]["maxUnavailable"] for name, each in budgets.items()} == {
        "tierstate-gateway": 1,
        "tierstate-proxy": 1,
    }
    assert of_kind("PodDisruptionBudget", objects(*FETCHING)).keys() - budgets.keys() == {"tierstate-agent"}
    assert "tierstate-agent" not in of_kind("PodDisruptionBudget", objects(*FETCHING, "--set", "agent.replicas=1"))


def test_the_rules_are_those_of_prometheus_alone() -> None:
    (rule,) = of_kind("PrometheusRule", objects("--values", EVERYTHING)).values()
    assert rule["spec"] == yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text())


@pytest.mark.parametrize("source", ["disk", "fetch"])
def test_the_operator_scrapes_jobs_and_labels_that_the_rules_expect(source: str) -> None:
    found = objects("--values", EVERYTHING, "--set", f"agent.source={source}")
    example = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yaml").read_text())["scrape_configs"]
    jobs = set()
    for name, monitor in of_kind("ServiceMonitor", found).items():
        (endpoint,) = monitor["spec"]["endpoints"]
        labels = {each["targetLabel"]: each["replacement"] for each in endpoint["relabelings"]}
        jobs.add(labels["job"])
        assert labels["cluster"] == "payments"
        service = of_kind("Service", found)[name]
        assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        assert [each["name"] for each in service["spec"]["ports"]] == [endpoint["port"]]
    assert jobs == {each["job_name"] for each in example} - {"tierstate-ready"}


def test_an_agent_is_one_instance_by_the_address_that_stands_in_its_facts() -> None:
    found = objects("--values", EVERYTHING)
    (endpoint,) = of_kind("ServiceMonitor", found)["tierstate-agent-management"]["spec"]["endpoints"]
    (rule,) = [each for each in endpoint["relabelings"] if each["targetLabel"] == "instance"]
    joined = rule["separator"].join((ADDRESSES["POD_NAME"], ADDRESSES["POD_NAMESPACE"]))
    agent = pods(found)["StatefulSet kafka"]["containers"][-1]
    assert rule["replacement"].replace("$1", joined) == environment(agent)["TIERSTATE_MANAGEMENT__LISTEN"]


def test_an_agent_that_fetches_is_one_instance_by_its_address_too() -> None:
    """Prometheus' own label `instance` is the address of the pod and the port, if no rule changes it."""
    found = objects(*FETCHING)
    (endpoint,) = of_kind("ServiceMonitor", found)["tierstate-agent-management"]["spec"]["endpoints"]
    assert [each for each in endpoint["relabelings"] if each["targetLabel"] == "instance"] == []
    agent = pods(found)["Deployment tierstate-agent"]["containers"][0]
    assert environment(agent)["TIERSTATE_MANAGEMENT__LISTEN"] == f"{ADDRESSES['POD_IP']}:9404"


def test_a_job_that_changed_is_another_job() -> None:
    """Kubernetes refuses to change a job, and an upgrade of the release would fail."""
    first, again, other = (
        [*of_kind("Job", objects(*arguments))]
        for arguments in ((), ("--set", "gateway.replicas=3"), ("--set", "image.tag=0.2.0"))
    )
    assert first == again
    assert first != other


def test_pods_restart_when_the_settings_of_the_chart_change() -> None:
    minimal = ("--values", CHART / "ci" / "minimal.yaml")
    sums = [
        of_kind("Deployment", objects(*minimal, *more))["tierstate-gateway"]["spec"]["template"]["metadata"]
        for more in ((), (), ("--set-file", f"settings.toml={ROOT / 'deploy' / 'production.toml'}"))
    ]
    assert sums[0] == sums[1]
    assert sums[0] != sums[2]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("gatewya.replicas=3", "gatewya"),
        ("gateway.replicas=two", "replicas"),
        ("proxy.nodeIds={1,1}", "nodeIds"),
        ("proxy.sni=kafka.example.com", "sni"),
        ("agent.runAsUser=0", "runAsUser"),
        ("agent.source=tape", "source"),
        ("agent.spool=8GiB", "spool"),
        ("table.enabled=true,table.replicas=2", "table.persistence.enabled=false"),
        ("proxy.tls.enabled=false,proxy.sni=b-{node}.example.com", "proxy.tls.enabled"),
        ("settings.existingConfigMap=", "settings.toml or settings.existingConfigMap"),
    ],
)
def test_a_wrong_value_is_refused_with_its_name(wrong: str, reason: str) -> None:
    done = helm(
        "template", "tierstate", CHART, "--kube-version", RELEASE, "--set", wrong.replace("{node}", "\\{node\\}")
    )
    assert done.returncode != 0
    assert reason in done.stderr


def test_a_package_has_the_rules_and_nothing_that_only_tests_need(tmp_path: Path) -> None:
    done = helm("package", CHART, "--destination", tmp_path)
    assert done.returncode == 0, done.stderr
    (package,) = tmp_path.glob("*.tgz")
    with tarfile.open(package) as archive:
        names = {Path(name).relative_to("tierstate") for name in archive.getnames()}
    assert {name.parts[0] for name in names} == {
        *("Chart.yaml", "values.yaml", "values.schema.json", "templates", "files", ".helmignore")
    }
    assert Path("files/alerts.yaml") in names


def test_the_raw_manifests_are_what_the_chart_renders() -> None:
    differing = [path.name for path, text in manifests().items() if not path.exists() or path.read_text() != text]
    assert differing == [], "write them again: python -m tests.deploy.raw"
    assert {*manifests()} == {*(ROOT / "deploy" / "kubernetes").iterdir()}


def test_the_schema_has_every_value_and_no_other() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())

    def keys(part: dict[str, Any]) -> Any:
        part = schema["definitions"][part["$ref"].rpartition("/")[2]] if "$ref" in part else part
        return {name: keys(each) for name, each in part["properties"].items()} if "properties" in part else None

    def compare(values: dict[str, Any], known: dict[str, Any], path: str) -> None:
        assert values.keys() == known.keys() - {"global"}, path
        for name, each in known.items():
            if each is not None and name != "resources":
                compare(values[name], each, f"{path}.{name}")

    compare(yaml.safe_load((CHART / "values.yaml").read_text()), keys(schema), "values")
