"""Worlds in memory, over copies of folders that a real broker wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.leader.expiry import Expiry, by_size
from tests.leader.world import World


@pytest.fixture
def new_world(tmp_path: Path) -> Iterator[Callable[..., World]]:
    made: list[World] = []

    def make(case: str = "none", config: Mapping[str, str] | None = None) -> World:
        made.append(World(tmp_path / str(len(made)), case, config))
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def world(new_world: Callable[..., World]) -> World:
    """Five rolled segments of plain records, all of which may be trimmed once they are copied."""
    return new_world("none", {"local.retention.bytes": "0"})


@pytest.fixture
def two_expire(world: World) -> Expiry:
    """Five segments are copied; by size the two oldest are too many."""
    process = world.process()
    session = process.copy_all()
    return Expiry(process, session, by_size(world, 3))
