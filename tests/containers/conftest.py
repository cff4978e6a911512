"""These tests start a container engine: only `make containers` collects them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers import engine as engines
from tests.containers import images
from tests.containers.engine import Engine
from tests.wheels import ROOT

IMAGE, AGENT = "tierstate:0.1.0", "tierstate-agent:0.1.0"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    selected = "containers" in str(config.option.markexpr)
    return True if collection_path.name.startswith("test_") and not selected else None


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """The engine of this machine if it has the published images or can pull them; otherwise one of our own."""
    here = engines.usable()
    if here is not None and images.published(here):
        yield here
        return
    reason = engines.missing()
    if reason:
        engines.skip_or_fail(reason)
    with engines.started() as own:
        images.tools(own)
        yield own


@pytest.fixture(scope="session")
def built(engine: Engine) -> Engine:
    """The engine, with our images: all of it, an agent alone, and Spark's with ours in it."""
    with images.sources(engine):
        engine.build(ROOT, IMAGE)
        engine.build(ROOT, AGENT, "--build-arg", "LOCK=agent")
        engine.build(ROOT, images.SPARK_OURS, "--file", str(ROOT / "deploy" / "spark" / "Dockerfile"))
    return engine
