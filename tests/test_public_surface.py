"""The public names are the documented ones, have types, and cost nothing until they are used."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import get_type_hints

import confluent_kafka
import pytest

import tierstate
import tierstate.spark

ROOT = Path(__file__).resolve().parents[1]


def test_the_public_names_are_the_documented_ones() -> None:
    documented = re.search(r"^from tierstate import (.+)$", (ROOT / "docs" / "tour.md").read_text(), re.MULTILINE)
    assert documented is not None, "docs/tour.md shows no `from tierstate import …`"
    assert sorted(name.strip() for name in documented[1].split(",")) == sorted(tierstate.__all__)


@pytest.mark.parametrize("name", tierstate.__all__)
def test_every_public_name_exists_and_says_what_it_is(name: str) -> None:
    assert (getattr(tierstate, name).__doc__ or "").strip()


def test_every_method_of_the_consumer_says_what_it_does() -> None:
    methods = {name: method for name, method in vars(tierstate.TieredConsumer).items() if not name.startswith("_")}
    assert len(methods) > 15
    assert {name for name, method in methods.items() if not (method.__doc__ or "").strip()} == set()


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    missing = "RemoteConsumer"
    with pytest.raises(AttributeError, match="RemoteConsumer"):
        getattr(tierstate, missing)


def test_importing_tierstate_imports_no_package() -> None:
    code = "import sys, tierstate; print([name for name in sys.modules if name.startswith('tierstate.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT / "docs")
    assert done.stdout.strip() == "[]"


def test_a_message_of_the_consumer_is_typed_as_kafkas() -> None:
    assert get_type_hints(tierstate.TieredConsumer.poll)["return"] == confluent_kafka.Message | None
    assert get_type_hints(tierstate.TieredConsumer.consume)["return"] == list[confluent_kafka.Message]


def test_dir_of_the_spark_package_shows_session_alone() -> None:
    assert [name for name in dir(tierstate.spark) if not name.startswith("_")] == ["session"]


def test_dir_shows_the_surface_and_the_version_is_the_packages() -> None:
    assert set(tierstate.__all__) < set(dir(tierstate))
    assert "import_module" not in dir(tierstate)
    assert tierstate.__version__ == version("tierstate")
