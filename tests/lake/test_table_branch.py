"""A table's rows go to a branch, which a person publishes; a tag keeps its snapshot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.table import DataScan

from tests.fetch.two_tiers import Golden
from tests.lake.exports import digest_of
from tests.lake.tables import NAME, TableWorld
from tests.lake.test_table_history import delete_below, unclean_election
from tierstate.lake.table_check import check_table
from tierstate.lake.table_snapshots import Retention, expire, surplus
from tierstate.lake.table_upkeep import compact
from tierstate.runtime.clock import SystemClock
from tierstate.state.errors import InvalidRequest
from tierstate.state.offsets import TimestampMs

pytestmark = pytest.mark.extended

Make = Callable[..., Golden]
BRANCH = "audit"


@pytest.fixture
def world(golden_log: Make, tmp_path: Path) -> TableWorld:
    made = TableWorld(golden_log("transactions"), tmp_path)
    facts = made.table().facts
    with made.catalog() as catalog:
        catalog.drop(NAME)
        catalog.create(NAME, replace(facts, branch=BRANCH))
    made.follow()
    return made


def digest(scan: DataScan) -> tuple[int, str]:
    return digest_of(scan.to_arrow().sort_by("offset"))


def test_rows_are_in_the_branch_alone_until_it_is_published(world: TableWorld) -> None:
    iceberg = world.table().iceberg
    assert iceberg.scan().count() == 0
    assert digest(iceberg.scan().use_ref(BRANCH)) == world.log_digest()
    iceberg.manage_snapshots().set_current_snapshot(ref_name=BRANCH).commit()
    assert digest(world.table().iceberg.scan()) == world.log_digest()


def test_a_branch_lives_as_a_table_does(world: TableWorld) -> None:
    delete_below(world, 777)
    unclean_election(world, 99, 1500)
    world.follow()
    table = world.table()
    assert compact(table, world.attempt_id, execute=True).commits
    assert expire(table, surplus(table, Retention(1, 0), TimestampMs(SystemClock().now_ms() + 1000)))
    assert not check_table(world.table(), world.log()).findings
    assert digest(world.table().iceberg.scan().use_ref(BRANCH)) == world.log_digest(end=1500)
    assert world.table().iceberg.scan().count() == 0
    assert not world.follow()


def test_a_tagged_snapshot_is_never_expired(world: TableWorld) -> None:
    iceberg, before = world.table().iceberg, world.log_digest()
    tagged = iceberg.snapshot_by_name(BRANCH)
    assert tagged is not None
    iceberg.manage_snapshots().create_tag(tagged.snapshot_id, "audited").commit()
    delete_below(world, 777)
    world.follow()
    table = world.table()
    expire(table, surplus(table, Retention(1, 0), TimestampMs(SystemClock().now_ms() + 1000)))
    assert digest(world.table().iceberg.scan().use_ref("audited")) == before


def test_a_removed_branch_stops_the_table(world: TableWorld) -> None:
    world.table().iceberg.manage_snapshots().remove_branch(BRANCH).commit()
    with pytest.raises(InvalidRequest, match="the branch of this table was removed"):
        world.follow()
