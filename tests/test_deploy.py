"""The files for deployment: every name in them is real. `make containers` runs them; here they are parsed."""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import boto3
import click
import pytest
import yaml
from moto.server import ThreadedMotoServer

from tierstate.cli.context import Context
from tierstate.cli.main import root
from tierstate.cli.serving import CLOSING_SECONDS
from tierstate.runtime.health_check import is_healthy
from tierstate.runtime.management import Health, ManagementServer
from tierstate.runtime.service import STOP_SECONDS
from tierstate.runtime.setting_types import Address
from tierstate.runtime.settings import Settings
from tierstate.runtime.settings_load import load_settings
from tierstate.runtime.watchdog import LOOK_S

ROOT = Path(__file__).resolve().parents[1]


def compose(variables: Mapping[str, str]) -> dict[str, Any]:
    """Return compose.yaml as an engine reads it with these variables: ``${NAME:-default}``."""
    text = (ROOT / "compose.yaml").read_text()
    document = yaml.safe_load(re.sub(r"\$\{(\w+):-([^}]*)\}", lambda match: variables.get(match[1], match[2]), text))
    assert isinstance(document, dict)
    return document


COMPOSE = compose({})
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = [name for name, service in SERVICES.items() if service["image"].startswith("tierstate:")]
COMMANDS = [name for name in OURS if "entrypoint" not in SERVICES[name]]
SETTINGS = "/etc/tierstate/tierstate.toml"


def parse(arguments: list[str]) -> None:
    """Parse a command line as the program would, without running it. Raises click's usage errors."""
    context = Context()
    try:
        with click.Context(root, obj=context) as ctx:
            name, command, rest = root.resolve_command(ctx, list(arguments))
            assert name is not None
            assert command is not None
            command.make_context(name, rest, parent=ctx)
    finally:
        context.deadline.cancel()  # --timeout is armed as it is parsed, and would end this process later


def mounts(service: str) -> dict[str, str]:
    """Return the sources by path in the container: a named volume or a file."""
    parts = [str(volume).split(":") for volume in SERVICES[service].get("volumes", [])]
    return {part[1]: part[0] for part in parts}


def settings_of(service: str) -> Settings:
    """Return the settings as the process in the container reads them."""
    file = ROOT / mounts(service)[SETTINGS]
    return load_settings(file, (), {name: str(value) for name, value in SERVICES[service]["environment"].items()})


def test_the_compose_file_has_every_process_that_a_user_runs() -> None:
    assert set(SERVICES) == {"kafka", "store", "bucket", "init", "agent", "gateway", "proxy"}
    assert {name: SERVICES[name]["command"] for name in COMMANDS} == {
        "init": ["init"],
        "agent": ["agent"],
        "gateway": ["gateway"],
        "proxy": ["proxy"],
    }


@pytest.mark.parametrize("service", SERVICES)
def test_every_image_is_pinned(service: str) -> None:
    image = SERVICES[service]["image"]
    assert re.fullmatch(r"[a-z0-9/-]+:v?\d+\.\d+\.\d+", image), image


def test_the_images_of_the_dockerfile_are_pinned_and_its_last_user_is_not_root() -> None:
    text = (ROOT / "Dockerfile").read_text()
    bases = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    assert bases == ["python:3.11-slim"] * 2
    assert re.findall(r"^USER (\S+)", text, re.MULTILINE)[-1] not in ("root", "0")
    assert re.search(r"pip install .*--require-hashes -r requirements/", text)


def test_the_image_is_built_from_files_that_the_ignore_file_lets_through() -> None:
    lines = (ROOT / ".dockerignore").read_text().split()
    allowed = {line[1:] for line in lines if line.startswith("!")}
    rooms = {path.name for path in (ROOT / "src" / "tierstate").iterdir() if path.is_symlink()}
    needed = rooms | {"src", "pyproject.toml", "requirements", "README.md"}
    assert lines[0] == "*"
    assert needed <= allowed
    assert {name for name in allowed if not (ROOT / name).exists()} == set()


@pytest.mark.parametrize("service", SERVICES)
def test_every_file_and_volume_that_is_mounted_exists(service: str) -> None:
    for source in mounts(service).values():
        if source.startswith("."):
            assert (ROOT / source).is_file(), source
        else:
            assert source in COMPOSE["volumes"], source
    for file in SERVICES[service].get("env_file", []):
        assert (ROOT / file).is_file(), file


@pytest.mark.parametrize("service", OURS)
def test_the_settings_pass_the_loader(service: str) -> None:
    settings = settings_of(service)
    assert settings.store.endpoint == "http://store:7070"
    assert settings.kafka["bootstrap.servers"] == "kafka:19092"


@pytest.mark.parametrize("service", COMMANDS)
def test_every_command_passes_the_command_line_parser(service: str) -> None:
    parse(SERVICES[service]["command"])


def test_a_command_that_does_not_exist_does_not_pass() -> None:
    for wrong in (["agnet"], ["agent", "--onec"]):
        with pytest.raises(click.UsageError):
            parse(wrong)


def test_the_services_find_each_other() -> None:
    kafka, store = SERVICES["kafka"]["environment"], SERVICES["store"]
    settings = settings_of("agent")
    assert f"://{settings.kafka['bootstrap.servers']}" in kafka["KAFKA_ADVERTISED_LISTENERS"]
    assert f":{settings.store.endpoint.rpartition(':')[2]}" in store["command"]
    credentials = {"AWS_ACCESS_KEY_ID": "ROOT_ACCESS_KEY", "AWS_SECRET_ACCESS_KEY": "ROOT_SECRET_KEY"}
    for service in OURS:
        for ours, theirs in credentials.items():
            assert SERVICES[service]["environment"][ours] == store["environment"][theirs]


def test_the_agent_sees_the_brokers_log_folders_where_the_settings_say() -> None:
    folders = [str(folder) for folder in settings_of("agent").agent.log_dirs]
    assert folders == [SERVICES["kafka"]["environment"]["KAFKA_LOG_DIRS"]]
    assert mounts("agent")[folders[0]] == mounts("kafka")[folders[0]]


@pytest.mark.parametrize("service", ["agent", "gateway", "proxy"])
def test_the_state_is_a_volume_of_its_own(service: str) -> None:
    assert mounts(service)[str(settings_of(service).state_dir)] == f"{service}-state"


def test_the_agent_announces_a_management_address_that_others_reach() -> None:
    management = settings_of("agent").management
    assert management.announced(management.of("agent")) == Address("agent", management.of("agent").port)


@pytest.mark.parametrize("service", ["agent", "gateway", "proxy"])
def test_the_management_port_is_the_one_that_prometheus_scrapes(service: str) -> None:
    """The process listens on every address of its container."""
    management, unset = settings_of(service).management, Settings().management
    listens, usual = {
        "agent": (management.of("agent"), unset.of("agent")),
        "gateway": (management.of("gateway"), unset.of("gateway")),
        "proxy": (management.of("proxy"), unset.of("proxy")),
    }[service]
    assert listens == Address("0.0.0.0", usual.port)
    scraped = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yaml").read_text())["scrape_configs"]
    (job,) = (config for config in scraped if config["job_name"] == f"tierstate-{service}")
    assert {target.rpartition(":")[2] for target in job["static_configs"][0]["targets"]} == {str(usual.port)}


def test_nothing_is_published_beyond_this_machine() -> None:
    for service in SERVICES.values():
        assert all(str(port).startswith("127.0.0.1:") for port in service.get("ports", []))


@pytest.mark.parametrize("service", ["agent", "gateway", "proxy"])
def test_the_health_check_of_the_image_fails_when_the_process_is_not_healthy(service: str) -> None:
    """Compose and Docker take it from the image; the variable is the one that compose.yaml sets."""
    assert "healthcheck" not in SERVICES[service]
    assert "TIERSTATE_MANAGEMENT__LISTEN" in SERVICES[service]["environment"]
    (line,) = re.findall(r"^HEALTHCHECK .*CMD (.*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    _, *command = json.loads(line)

    def check(wrong: list[str]) -> int:
        health = Health(lambda: wrong, lambda: wrong, lambda: b"", lambda name, partition: None)
        server = ManagementServer(Address("127.0.0.1", 0), health)
        running = server.service()
        running.start()
        try:
            environment = os.environ | {"TIERSTATE_MANAGEMENT__LISTEN": str(server.address)}
            return subprocess.run([sys.executable, *command], env=environment, capture_output=True).returncode
        finally:
            running.stop()
            running.join(10)

    assert check([]) == 0
    assert check(["not now"]) != 0


@pytest.mark.parametrize("service", ["agent", "gateway", "proxy"])
def test_a_stop_is_given_longer_than_the_process_takes(service: str) -> None:
    assert int(SERVICES[service]["stop_grace_period"].removesuffix("s")) > STOP_SECONDS + CLOSING_SECONDS


@pytest.mark.parametrize("service", ["agent", "gateway", "proxy"])
def test_health_covers_what_a_restart_repairs_and_a_stop_works_during_a_start(service: str) -> None:
    """Health is not ``/readyz``: a restart does not bring a store or a broker back."""
    assert '"/healthz"' in inspect.getsource(is_healthy)
    assert SERVICES[service]["init"] is True


def test_the_proxy_is_reached_on_the_ports_that_it_tells_clients() -> None:
    proxy, node = settings_of("proxy").proxy, int(SERVICES["kafka"]["environment"]["KAFKA_NODE_ID"])
    ports = [proxy.listen.port, proxy.listen.port + 1 + node]
    assert SERVICES["proxy"]["ports"] == [f"{proxy.reachable}:{port}:{port}" for port in ports]


def test_two_copies_share_no_port_and_each_tells_clients_its_own() -> None:
    ports = {"KAFKA_PORT": "19092", "GATEWAY_PORT": "18080", "PROXY_PORT": "19192", "PROXY_BROKER_PORT": "19194"}
    other = compose(ports)["services"]
    published = [port for service in other.values() for port in service.get("ports", [])]
    assert sorted(port.split(":")[1] for port in published) == sorted(ports.values())
    assert f"HOST://127.0.0.1:{ports['KAFKA_PORT']}" in other["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert other["proxy"]["environment"]["TIERSTATE_PROXY__LISTEN"] == f"0.0.0.0:{ports['PROXY_PORT']}"


@pytest.mark.parametrize("service", OURS)
def test_our_containers_have_a_read_only_root_file_system(service: str) -> None:
    assert SERVICES[service]["read_only"] is True
    assert SERVICES[service]["tmpfs"] == ["/tmp"]


def test_the_image_is_labelled_with_the_version_that_is_installed() -> None:
    (label,) = re.findall(r'opencontainers.image.version="(.*)"', (ROOT / "Dockerfile").read_text())
    assert SERVICES["agent"]["image"] == f"tierstate:{label}"


def test_sparks_image_is_of_the_release_that_is_tried() -> None:
    (release,) = re.findall(
        r"^ARG SPARK=apache/spark:([0-9.]+)-", (ROOT / "deploy/spark/Dockerfile").read_text(), re.MULTILINE
    )
    assert f"\npyspark=={release} " in (ROOT / "requirements/dev.lock").read_text()


def test_every_dependency_is_a_service_and_a_condition_it_can_meet() -> None:
    for service in SERVICES.values():
        needed = service.get("depends_on", {})
        for name, how in needed.items() if isinstance(needed, dict) else ((name, {}) for name in needed):
            condition = how.get("condition", "service_started")
            assert condition != "service_healthy" or "healthcheck" in SERVICES[name]
            assert condition != "service_completed_successfully" or "restart" not in SERVICES[name]


def test_the_bucket_is_made_once_and_found_again(tmp_path: Path) -> None:
    assert SERVICES["bucket"]["entrypoint"][1] in mounts("bucket")
    script = ROOT / mounts("bucket")[SERVICES["bucket"]["entrypoint"][1]]
    environment = os.environ | {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        settings = tmp_path / "tierstate.toml"
        text = (ROOT / "deploy" / "tierstate.toml").read_text()
        settings.write_text(text.replace("http://store:7070", endpoint))
        for _ in range(2):
            subprocess.run([sys.executable, script, settings], check=True, capture_output=True, env=environment)
        client = cast(Any, boto3).client(
            "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test"
        )
        # the same process has the buckets of the other tests
        assert [b["Name"] for b in client.list_buckets()["Buckets"] if b["Name"] == "tierstate"] == ["tierstate"]
    finally:
        server.stop()


# --- systemd ---------------------------------------------------------------------------------------------------------

UNITS = ["agent", "gateway", "proxy"]


def unit(name: str) -> dict[str, dict[str, list[str]]]:
    """Return sections, keys and every value of a key (systemd lets keys repeat)."""
    text = (ROOT / "deploy" / f"tierstate-{name}.service").read_text()
    sections: dict[str, dict[str, list[str]]] = {}
    section = ""
    for line in text.splitlines():
        if line.startswith("["):
            section = line.strip("[]")
            sections[section] = {}
        elif "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            sections[section].setdefault(key, []).append(value)
    return sections


def variables_of(name: str) -> dict[str, str]:
    return dict(word.split("=", 1) for line in unit(name)["Service"]["Environment"] for word in line.split())


@pytest.mark.parametrize(
    ("name", "before"), [("agent", [["check", "--timeout", "60s"]]), ("gateway", []), ("proxy", [])]
)
def test_a_unit_runs_commands_that_exist_and_an_agents_checks_keep_it_from_nothing(
    name: str, before: list[list[str]]
) -> None:
    """The hyphen lets the agent start whatever the command finds; the agent refuses what it cannot do without."""
    service = unit(name)["Service"]
    assert all(line.startswith("-") for line in service.get("ExecStartPre", []))
    service["ExecStartPre"] = [line.removeprefix("-") for line in service.get("ExecStartPre", [])]
    for key in ("ExecStartPre", "ExecStart"):
        for command in service.get(key, []):
            program, *arguments = shlex.split(command)
            assert program == "/opt/tierstate/bin/tierstate"
            parse(arguments)
    assert [line.split()[1:] for line in service.get("ExecStartPre", [])] == before
    assert service["ExecStart"][0].split()[1:] == [name]


def test_an_agent_refuses_settings_that_it_cannot_run_with(tmp_path: Path) -> None:
    """The unit's check keeps no agent from starting; a wrong login is refused in `tests/broker/test_security.py`."""
    settings = ["--bootstrap-server", "127.0.0.1:1", "--store", tmp_path.as_uri()]
    for wrong, text in (
        (["--set", "copy.lagg=1s"], "copy.lagg: unknown"),
        (["--set", f"agent.log_dirs={tmp_path / 'none'}"], f"{tmp_path / 'none'}"),
    ):
        command = [sys.executable, "-m", "tierstate.cli.main", "agent", *settings, *wrong]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60)
        assert done.returncode == 2, done.stderr
        assert text in done.stderr


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_gives_the_process_what_its_settings_need(name: str) -> None:
    service, variables = unit(name)["Service"], variables_of(name)
    assert service["Type"] == ["notify"]
    assert service["Restart"] == ["always"]
    assert variables.pop("TIERSTATE_CONFIG") == SETTINGS
    assert load_settings(None, (), variables, searched=()).state_dir == Path("/var/lib") / service["StateDirectory"][0]
    assert Path("/var/cache") / service["CacheDirectory"][0] == Path(variables["NUMBA_CACHE_DIR"])
    assert service["User"] != ["root"]


def test_an_agent_a_gateway_and_a_proxy_run_on_one_machine() -> None:
    settings = [load_settings(None, (), _ours(name), searched=()) for name in UNITS]
    assert len({setting.management.listen for setting in settings}) == len(UNITS)
    assert len({setting.state_dir for setting in settings}) == len(UNITS)


def _ours(name: str) -> dict[str, str]:
    return {key: value for key, value in variables_of(name).items() if key != "TIERSTATE_CONFIG"}


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_stops_its_process_no_sooner_than_it_stops_itself(name: str) -> None:
    assert int(unit(name)["Service"]["TimeoutStopSec"][0].removesuffix("s")) > STOP_SECONDS + CLOSING_SECONDS


@pytest.mark.parametrize("name", UNITS)
def test_the_supervisor_hears_several_times_of_a_process_before_it_gives_it_up(name: str) -> None:
    assert unit(name)["Service"]["WatchdogSec"] == ["5min"]
    assert 5 * 60 > 3 * LOOK_S


def test_ten_seconds_are_enough_to_stop() -> None:
    assert STOP_SECONDS + CLOSING_SECONDS < 10


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_is_hardened_but_lets_the_decoder_compile(name: str) -> None:
    service = unit(name)["Service"]
    for key in ("NoNewPrivileges", "PrivateTmp", "ProtectHome", "ProtectKernelTunables", "RestrictSUIDSGID"):
        assert service[key] == ["true"], key
    assert service["ProtectSystem"] == ["strict"]
    assert ("ReadWritePaths" in service) is (name == "agent"), "the broker's folders, and nothing else"
    paths = service.get("ReadWritePaths", [])
    assert all(path.startswith("-") for path in paths), (
        "one that is absent is left out: else it ends with 226/NAMESPACE"
    )
    assert "MemoryDenyWriteExecute" not in service


def test_commit_hooks_fetch_nothing() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert [repo["repo"] for repo in hooks["repos"]] == ["local"]
    assert "://" not in (ROOT / ".pre-commit-config.yaml").read_text()
