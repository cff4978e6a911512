"""`deploy/kubernetes/` and `deploy/production.toml`: every name in them is real, and they agree with each other.

`tests/deploy` renders the manifests from the chart.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient

from tests.broker.guarded import self_signed
from tests.deploy.restricted import violations
from tests.scenarios.house import get
from tests.test_deploy import ROOT, parse
from tierstate.app.looking.watching import longest_silence
from tierstate.broker.client_config import admin_config
from tierstate.broker.framed_socket import tls_context
from tierstate.cli.serving import CLOSING_SECONDS
from tierstate.runtime.management import Health, ManagementServer
from tierstate.runtime.service import STOP_SECONDS
from tierstate.runtime.setting_types import Address
from tierstate.runtime.settings import Settings
from tierstate.runtime.settings_load import load_settings

KUBERNETES = ROOT / "deploy" / "kubernetes"
KUBERNETES_PAGE = ROOT / "docs" / "kubernetes.md"
PRODUCTION = ROOT / "deploy" / "production.toml"
ROTATION = ROOT / "docs" / "rotation.md"
MANIFESTS = sorted(KUBERNETES.glob("*.yaml"))
PROCESSES = ["agent", "agent-fetch", "gateway", "proxy", "init", "table"]
SERVING = ["agent", "agent-fetch", "gateway", "proxy", "table"]
SECRETS = {"KAFKA_USERNAME": "agent", "KAFKA_PASSWORD": "not in any file"}


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((KUBERNETES / f"{name}.yaml").read_text()))


def of_kind(name: str, kind: str) -> dict[str, Any]:
    (document,) = [document for document in documents(name) if document["kind"] == kind]
    return document


def pod(name: str) -> dict[str, Any]:
    (spec,) = [document["spec"]["template"]["spec"] for document in documents(name) if "template" in document["spec"]]
    assert isinstance(spec, dict)
    return spec


def container(name: str) -> dict[str, Any]:
    (document,) = pod(name)["containers"]
    assert isinstance(document, dict)
    return document


def environment(name: str) -> dict[str, str]:
    """Return the variables as Kubernetes sets them: ``$(NAME)`` stands for a variable that is set before it."""
    values = {"POD_NAME": "kafka-0", "POD_NAMESPACE": "events", "POD_IP": "10.0.0.7"}
    variables: dict[str, str] = {}
    for variable in container(name)["env"]:
        value = variable["value"] if "value" in variable else values[variable["name"]]
        variables[variable["name"]] = re.sub(r"\$\((\w+)\)", lambda match: variables[match[1]], value)
    return variables


def settings_of(name: str) -> Settings:
    values = environment(name)
    del values["TIERSTATE_CONFIG"]
    return load_settings(PRODUCTION, (), values | SECRETS)


def mounts(name: str) -> list[Path]:
    return [Path(mount["mountPath"]) for mount in container(name)["volumeMounts"]]


# --- settings --------------------------------------------------------------------------------------------------------


def test_the_settings_of_production_are_of_a_secured_cluster() -> None:
    settings = load_settings(PRODUCTION, (), SECRETS)
    assert settings.kafka["security.protocol"] == "SASL_SSL"
    assert settings.kafka["sasl.password"] == SECRETS["KAFKA_PASSWORD"]
    assert settings.gateway.auth.tokens
    assert settings.gateway.tls.certificate
    assert settings.gateway.tls.key
    assert settings.tier_state.replication_factor == 3
    assert settings.proxy.listen.everywhere, "clients of other machines reach the proxy that the unit starts"
    assert settings.proxy.reachable


def test_both_kafka_clients_take_the_properties(tmp_path: Path) -> None:
    authority, _ = self_signed(tmp_path)
    kafka = load_settings(PRODUCTION, (f"kafka.ssl.ca.location={authority}",), SECRETS).kafka
    AdminClient(admin_config(kafka))
    assert tls_context(kafka) is not None


def test_no_secret_stands_in_the_settings_and_none_is_shown() -> None:
    settings = load_settings(PRODUCTION, (), SECRETS)
    assert settings.is_masked("kafka.sasl.password")
    assert not re.search(r"^[^#]*(password|secret)\S* = \"", PRODUCTION.read_text(), re.MULTILINE)


def test_every_secret_has_a_line_by_file_that_is_read_again_without_a_restart(tmp_path: Path) -> None:
    """The same lines stand in docs/rotation.md, which `tests/scenarios/test_rotation.py` follows."""
    lines = re.findall(r'^# ((\S+) = \{ file = "(\S+)" \})$', PRODUCTION.read_text(), re.MULTILINE)
    text, files = PRODUCTION.read_text(), [path for _, _, path in lines]
    for line, key, _ in lines:
        assert line in ROTATION.read_text()
        text = re.sub(rf"^{re.escape(key)} = \{{ env = .*\n", "", text, flags=re.MULTILINE).replace(f"# {line}", line)
    for path in files:
        (tmp_path / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path[1:]).write_text(f"first of {path}\n")
    config = tmp_path / "tierstate.toml"
    config.write_text(text.replace('"/etc/tierstate/secrets', f'"{tmp_path}/etc/tierstate/secrets'))
    settings = load_settings(config, (), {"KAFKA_USERNAME": "agent"})
    assert sorted(settings.live) == ["kafka.sasl.password", "store.access_key_id", "store.secret_access_key"]
    assert all(settings.is_masked(key) for key in settings.live)
    assert sorted(each.now() for each in settings.live.values()) == sorted(f"first of {path}" for path in files)
    for path in files:
        (tmp_path / path[1:]).write_text(f"the next of {path}\n")
    assert sorted(each.now() for each in settings.live.values()) == sorted(f"the next of {path}" for path in files)


# --- Kubernetes ------------------------------------------------------------------------------------------------------


def test_there_is_a_manifest_for_each_process() -> None:
    kinds = {path.stem: sorted(document["kind"] for document in documents(path.stem)) for path in MANIFESTS}
    assert kinds == {
        "agent": ["StatefulSet"],
        "agent-fetch": ["Deployment", "PodDisruptionBudget"],
        "gateway": ["Deployment", "PodDisruptionBudget", "Service"],
        "proxy": ["Deployment", "PodDisruptionBudget", "Service"],
        "table": ["Deployment", "PersistentVolumeClaim"],
        "init": ["Job"],
        "networkpolicy": ["NetworkPolicy"] * 5,
    }


@pytest.mark.parametrize("name", PROCESSES)
def test_a_manifest_runs_a_command_that_exists_with_settings_that_load(name: str) -> None:
    parse(container(name)["args"])
    commands = {"table": ["table", "follow"], "agent-fetch": ["agent"]}
    assert container(name)["args"] == commands.get(name, [name])
    assert re.fullmatch(r"tierstate(-table)?:\d+\.\d+\.\d+", container(name)["image"])
    assert Path(environment(name)["TIERSTATE_CONFIG"]).parent in mounts(name)
    settings_of(name)


@pytest.mark.parametrize("name", PROCESSES)
def test_every_volume_that_is_mounted_is_there_and_none_lies_in_another(name: str) -> None:
    """A folder within a volume of a ConfigMap cannot be made: that volume is read-only."""
    volumes = {volume["name"] for volume in pod(name)["volumes"]} | {"data"}
    assert {mount["name"] for mount in container(name)["volumeMounts"]} <= volumes
    for one in mounts(name):
        assert not [other for other in mounts(name) if other != one and other.is_relative_to(one)]


@pytest.mark.parametrize("name", PROCESSES)
def test_every_file_that_the_settings_name_is_in_the_volume_of_those_who_need_it(name: str) -> None:
    (volume,) = [volume for volume in pod(name)["volumes"] if "projected" in volume]
    secrets = [source["secret"] for source in volume["projected"]["sources"] if "secret" in source]
    there = {Path("/etc/tierstate") / item["path"] for secret in secrets for item in secret["items"]}
    settings = settings_of(name)
    needed = {Path(settings.kafka["ssl.ca.location"])}
    if name == "gateway":
        needed |= {path for path in (settings.gateway.tls.certificate, settings.gateway.tls.key) if path}
        needed |= {settings.gateway.auth.tokens} if settings.gateway.auth.tokens else set()
    if name == "proxy":
        needed |= {path for path in (settings.proxy.tls.certificate, settings.proxy.tls.key) if path}
    assert there == needed


def test_every_key_of_a_secret_that_is_mounted_is_one_that_the_page_makes() -> None:
    """The settings ask for the broker by a name of the StatefulSet whose ids the proxy exposes."""
    secrets: dict[str, set[str]] = {}
    text = KUBERNETES_PAGE.read_text().replace("\\\n", " ")
    for name, rest in re.findall(r"create secret generic (\S+) (.*)", text):
        secrets[name] = set(re.findall(r"--from-file=([\w.]+)", rest)) | set(re.findall(r"--from-literal=(\w+)=", rest))
    for name in PROCESSES:
        (volume,) = [volume for volume in pod(name)["volumes"] if "projected" in volume]
        for secret in (source["secret"] for source in volume["projected"]["sources"] if "secret" in source):
            assert {item["key"] for item in secret["items"]} <= secrets[secret["name"]], name
        for source in container(name)["envFrom"]:
            assert secrets[source["secretRef"]["name"]] == {"KAFKA_USERNAME", "KAFKA_PASSWORD"}


def test_the_proxy_exposes_the_brokers_that_the_settings_name() -> None:
    brokers = load_settings(PRODUCTION, (), SECRETS).kafka["bootstrap.servers"].split(",")
    ports = {port["name"] for port in of_kind("proxy", "Service")["spec"]["ports"]} - {"bootstrap"}
    assert ports == {f"broker-{re.match(r'kafka-([0-9]+)[.]', broker)[1]}" for broker in brokers}  # type: ignore[index]


def test_the_agent_sees_the_log_folders_and_keeps_its_state_where_the_settings_say() -> None:
    settings = settings_of("agent")
    assert set(settings.agent.log_dirs) | {settings.state_dir} <= set(mounts("agent"))
    for name in ("agent-fetch", "gateway", "proxy", "table"):
        assert settings_of(name).state_dir in mounts(name)
    assert settings_of("table").table.folder in mounts("table")


@pytest.mark.parametrize("name", SERVING)
def test_ports_are_those_of_the_settings(name: str) -> None:
    settings, ports = settings_of(name), {port["name"]: port["containerPort"] for port in container(name)["ports"]}
    management = settings.management
    of = {"agent": management.of("agent"), "gateway": management.of("gateway"), "proxy": management.of("proxy")}
    of |= {"agent-fetch": management.of("agent"), "table": management.of("table")}
    assert ports.pop("tierstate") == of[name].port
    if name == "proxy":
        first = settings.proxy.listen.port
        assert ports == {"bootstrap": first, **{f"broker-{node}": first + 1 + node for node in (0, 1, 2)}}
        service = of_kind(name, "Service")
        assert {port["targetPort"]: port["port"] for port in service["spec"]["ports"]} == ports
        assert f"{service['metadata']['name']}.events.svc" == settings.proxy.reachable
    if name == "gateway":
        assert ports["https"] == settings.gateway.listen.port
        service = of_kind(name, "Service")
        assert [port["targetPort"] for port in service["spec"]["ports"]] == ["https"]
        spec = of_kind(name, "Deployment")["spec"]
        labels = spec["template"]["metadata"]["labels"]
        assert service["spec"]["selector"] == spec["selector"]["matchLabels"] == labels


def test_an_agent_is_known_by_a_name_that_its_next_pod_keeps() -> None:
    assert settings_of("agent").management.of("agent").host == "kafka-0.kafka.events.svc.cluster.local"


@pytest.mark.parametrize("name", SERVING)
def test_a_process_is_alive_by_its_health_and_started_again_by_nothing_else(name: str) -> None:
    """The probe is not ``/readyz``: a restart does not bring a store or a broker back."""
    probe = container(name)["livenessProbe"]
    assert probe["httpGet"] == {"path": "/healthz", "port": "tierstate"}
    assert probe["failureThreshold"] >= 3


def test_every_probe_asks_for_a_page_that_a_process_answers_and_fails_when_it_is_not_well() -> None:
    wrong: list[str] = []
    health = Health(lambda: wrong, lambda: wrong, lambda: b"", lambda topic, partition: None)
    server = ManagementServer(Address("127.0.0.1", 0), health)
    running = server.service()
    running.start()
    try:
        for name in SERVING:
            for probe in (probe for key, probe in container(name).items() if key.endswith("Probe")):
                page = f"http://{server.address}{probe['httpGet']['path']}"
                wrong.clear()
                assert get(page)[0] == 200
                wrong.append("its reason")
                assert get(page)[0] == 503
                assert get(page)[1].startswith((b"not healthy\n", b"not ready\n"))
    finally:
        running.stop()
        running.join(10)


def test_an_agent_that_is_not_ready_takes_no_broker_out_of_service() -> None:
    """A pod is ready when all of its containers are. A startup probe would count, too."""
    assert {key for key in container("agent") if key.endswith("Probe")} == {"livenessProbe"}


def test_an_agent_that_fetches_is_ready_once_it_runs_and_stays_so() -> None:
    """A pod that is not ready cannot be drained, and a store that is away is no reason for that."""
    assert {key for key in container("agent-fetch") if key.endswith("Probe")} == {"startupProbe", "livenessProbe"}
    assert container("agent-fetch")["startupProbe"]["httpGet"] == {"path": "/healthz", "port": "tierstate"}


def test_an_agent_that_fetches_has_no_volume_of_a_broker_and_room_for_its_spool() -> None:
    volumes = {each["name"]: each for each in pod("agent-fetch")["volumes"]}
    assert all(each.keys() & {"emptyDir", "projected"} for each in volumes.values())
    settings = settings_of("agent-fetch")
    assert settings.agent.source == "fetch"
    assert volumes["state"]["emptyDir"]["sizeLimit"] > settings.agent.spool == Settings().agent.spool


def test_gateways_get_requests_once_they_are_ready_and_keep_them() -> None:
    assert {key for key in container("gateway") if key.endswith("Probe")} == {"startupProbe", "livenessProbe"}
    assert container("gateway")["startupProbe"]["httpGet"] == {"path": "/readyz", "port": "tierstate"}


def test_a_start_is_given_as_long_as_it_may_be_silent() -> None:
    silent = longest_silence(Settings())["start"]
    for name in ("agent", "table"):
        assert container(name)["livenessProbe"]["initialDelaySeconds"] > silent
    for name in ("agent-fetch", "gateway", "proxy"):
        startup = container(name)["startupProbe"]
        assert startup["periodSeconds"] * startup["failureThreshold"] > silent


def test_a_stop_is_given_longer_than_the_process_takes() -> None:
    for name in ("agent-fetch", "gateway", "proxy", "table"):
        assert pod(name)["terminationGracePeriodSeconds"] > STOP_SECONDS + CLOSING_SECONDS


@pytest.mark.parametrize("name", PROCESSES)
def test_pod_security_restricted_admits_it_and_the_root_file_system_is_read_only(name: str) -> None:
    """The agent's container has all that it needs: the pod is the broker's."""
    assert violations(pod(name)) == []
    assert container(name)["securityContext"]["readOnlyRootFilesystem"]
