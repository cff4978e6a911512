"""Our image holds what it needs, nothing more, and runs as it is deployed: no root, a read-only root file system."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

import pytest

from tests.containers.conftest import AGENT, IMAGE
from tests.containers.engine import Engine
from tests.containers.images import PYTHON
from tests.wheels import ROOT

pytestmark = [pytest.mark.containers, pytest.mark.timeout(3600)]
READ_ONLY = ("run", "--rm", "--read-only", "--tmpfs", "/tmp", "--network", "none")
FOLDER = ROOT / "tests/data/kafka-logs/zstd/gold-s7b-zstd-0"
BASE_MB = 125
"""The size of the published python:3.11-slim. A stand-in is larger or smaller, and is not counted."""
LIMITS_MB = {IMAGE: 600, AGENT: 350}
LIBRARIES = """
import ctypes, json, pathlib, sys
import numpy, pyarrow
bad = []
for path in pathlib.Path("/opt/tierstate/lib").rglob("*.so*"):
    try:
        ctypes.CDLL(str(path))
    except OSError as error:
        bad.append(str(error))
print(json.dumps([error for error in bad if "cannot open shared object file" not in error]))
"""
INSTALLED = """
import json
from importlib.metadata import distributions
print(json.dumps(sorted([each.name, each.version] for each in distributions())))
"""


def python(engine: Engine, code: str, image: str = IMAGE) -> Any:
    return json.loads(engine.docker(*READ_ONLY, "--entrypoint", "python", image, "-c", code))


def shell(engine: Engine, script: str, *options: str) -> str:
    return engine.docker(*READ_ONLY, *options, "--entrypoint", "bash", IMAGE, "-c", script)


def config(engine: Engine, image: str = IMAGE) -> dict[str, Any]:
    document = json.loads(engine.docker("image", "inspect", image))[0]["Config"]
    assert isinstance(document, dict)
    return document


def megabytes(engine: Engine, image: str) -> int:
    size: dict[str, int] = {
        name: json.loads(engine.docker("image", "inspect", name))[0]["Size"] for name in (image, PYTHON)
    }
    return round((size[image] - size[PYTHON]) / 1e6) + BASE_MB


def test_the_image_is_no_larger_than_it_is_allowed_to_be(built: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {image: megabytes(built, image) for image in (IMAGE, AGENT)}
    with capsys.disabled():
        print(f"\nsizes on the published base, MB: {sizes}")
    assert {image for image, size in sizes.items() if size > LIMITS_MB[image]} == set()


def test_the_image_has_no_root_no_compiler_and_no_installer(built: Engine) -> None:
    assert config(built)["User"] == "1000"
    paths = shell(built, "command -v gcc cc g++ make pip || true; find /opt -perm /6000")
    assert paths == ""
    assert "No module named pip" in shell(built, "python -m pip 2>&1 || true")


def test_the_image_says_what_it_is(built: Engine) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    labels = {name.rpartition(".")[2]: value for name, value in config(built)["Labels"].items()}
    assert labels["version"] == project["version"]
    assert labels["licenses"] == project["license"]
    assert labels["description"] == project["description"]


@pytest.mark.parametrize("image", [IMAGE, AGENT])
def test_the_sbom_lists_exactly_the_packages_that_are_installed(built: Engine, image: str) -> None:
    listed = python(built, "print(open('/opt/tierstate/sbom.cdx.json').read())", image)
    assert listed["bomFormat"] == "CycloneDX"
    components = sorted([component["name"], component["version"]] for component in listed["components"])
    assert components == python(built, INSTALLED, image)
    assert "tierstate" in [name for name, _ in components]


def test_every_library_of_the_image_can_be_loaded(built: Engine) -> None:
    """The build strips libraries; this shows that it broke none of them."""
    assert python(built, LIBRARIES) == []


def test_a_new_container_compiles_nothing(built: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    """A new container has every kernel, on any processor, with a read-only root file system and without a setting."""
    assert "NUMBA_CPU_NAME=generic" in config(built)["Env"]
    assert shell(built, "python -m tierstate.log.warm_kernels").startswith("warm already")
    script = f"time tierstate dump-log /{FOLDER.name} > /tmp/records"
    mount = ("--volume", f"{FOLDER}:/{FOLDER.name}:ro")
    printed = shell(built, f"set -e; {{ {script}; }} 2>&1; wc -l < /tmp/records", *mount)
    assert int(printed.split()[-1]) > 0
    seconds = sum(float(part) for part in re.findall(r"(?:user|sys)\s+0m([0-9.]+)s", printed))
    assert "saved" not in shell(built, f"tierstate dump-log /{FOLDER.name}", *mount, "--env", "NUMBA_DEBUG_CACHE=1")
    with capsys.disabled():
        print(f"\nfirst tierstate dump-log in a new container: {seconds:.2f} s of CPU")


@pytest.mark.parametrize("image", [IMAGE, AGENT])
def test_the_health_check_is_in_the_image(built: Engine, image: str) -> None:
    """The check fails where no process answers; the tests of the cluster see it pass."""
    kind, *command = config(built, image)["Healthcheck"]["Test"]
    assert kind == "CMD"
    assert built.docker(*READ_ONLY, "--entrypoint", "bash", image, "-c", f"{' '.join(command)}; echo $?").strip() == "1"
