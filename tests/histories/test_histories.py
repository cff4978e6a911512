"""Every promise holds in generated histories of production code, and some promise breaks without any one guard.

`promises.py` has the promises, `world.py` the events, and `guards.py` the guards that are removed. `make prove` runs
many more histories; `python -m tests.histories.history SEED` runs one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.histories.cloned import broken_by_clones
from tests.histories.directed import DIRECTED
from tests.histories.directed_fetch import (
    a_trim_of_another_epoch,
    a_trim_that_arrives_late,
    a_trim_that_dies_with_its_socket,
)
from tests.histories.guards import GUARDS, without
from tests.histories.history import broken
from tests.histories.later_release import BINDING, IGNORED
from tests.histories.moved import broken_by_moves
from tests.histories.prove import run_block
from tests.histories.restored import broken_by_restores
from tests.histories.shrink import shrink
from tests.histories.small_fetched import SmallFetchedWorld
from tests.histories.small_world import APPENDS, STARTS, explore


def blocks(first: int, count: int, size: int) -> list[Any]:
    """Return seeds: the ``first`` ones run in `make test`, three blocks in CI, the others in `make nightly`.

    `make prove` runs 100,000 histories.
    """
    tiers = [pytest.mark.extended] * 3 + [pytest.mark.slow] * (count - 3)
    seeds = [range(block * size, (block + 1) * size) for block in range(count)]
    return [range(first), *(pytest.param(block, marks=tier) for block, tier in zip(seeds, tiers, strict=True))]


ONE_OF_THREE = [0, *(pytest.param(block, marks=pytest.mark.extended) for block in (1, 2))]
LONG = ("a segment condemned", "a segment to remove")
"""Starts of the small world that take a minute: they run in `make nightly`."""
EFFECTS = (
    "SegmentCopied CopyFailed LocalTrimmed LogStartMoved SegmentDeleteBegan SegmentDeleted FactsErased TermStarted "
    "TermEnded TransactionIndexRebuilt ViewRebuilt OperatorOrder ReaderLease IntegrityHold crash freeze compacted "
    "erased aborted committed"
).split()
BELOW = "log begins below its epochs"
RARE = (
    "bit flipped",
    "clean election",
    "unclean election",
    "captured end",
    "deleted by hand",
    "group came",
    "group reset",
    "group given up",
    "head cut",
    "topic lost",
    IGNORED,
    BINDING,
    "tail cut",
    "wrong clocks",
    "GapAccepted",
    "gap passed over",
    BELOW,
)
LATE = ("late large put", "late large put after a deletion", "late large put over itself", "late small put")
ONCE_BROKEN = (3398, 3979, 4084, 4617, 7058, 11740, 13718, 28526, 86787, 93471)
"""Seeds of histories that broke in `make prove`, beyond those that run at night."""
FETCHED = (
    "archive",
    "begun late",
    "between two requests",
    "index with entries",
    "member given up",
    "rebalance",
    "retention took",
    "topic re-created",
    BELOW,
    "finished: all-copied",
)
READS = ("remote read", "remote read that the broker confirmed", "LineageUnconfirmed")


@pytest.mark.parametrize("seeds", blocks(first=50, count=30, size=100), ids=str)
def test_every_promise_holds_in_every_history(seeds: range) -> None:
    _, _, bad, seen = run_block(seeds.start, seeds.stop)
    assert bad == [], "replay with: python -m tests.histories.history SEED"
    missing = [effect for effect in (*EFFECTS, *RARE, *READS) if not seen[effect]]
    assert missing == [], "the histories did not exercise what they are for"


@pytest.mark.extended
@pytest.mark.parametrize("seed", ONCE_BROKEN)
def test_every_promise_holds_in_a_history_that_was_broken_once(seed: int) -> None:
    assert broken(seed) is None, f"replay with: python -m tests.histories.history {seed}"


@pytest.mark.parametrize("block", ONE_OF_THREE)
def test_every_promise_holds_where_writes_land_late_and_large_ones_replace_what_is_there(block: int) -> None:
    seen: Counter[str] = Counter()
    bad = [seed for seed in range(20 * block, 20 * block + 20) if broken(seed, seen=seen, late=True) is not None]
    assert bad == [], "replay with: python -m tests.histories.history SEED --late"
    assert [each for each in LATE if not seen[each]] == [], "the histories did not exercise what they are for"


@pytest.mark.extended
@pytest.mark.parametrize("name", [name for name, guard in GUARDS.items() if guard.seed is not None])
def test_without_this_guard_a_promise_breaks(name: str) -> None:
    seed = GUARDS[name].seed
    assert seed is not None
    source = GUARDS[name].source
    assert broken(seed, source=source) is None, "the history is broken with all guards in place"
    with without(name):
        found = any(broken(near, source=source) is not None for near in range(seed, seed + 40))
    assert found, "nothing found: search for another seed"


@pytest.mark.parametrize("name", DIRECTED)
def test_a_history_told_step_by_step_breaks_without_its_guard(name: str) -> None:
    find = DIRECTED[name]
    assert holds(find), "the history is broken with all guards in place"
    with without(name):
        assert find() is not None


@cache
def holds(find: Callable[[], str | None]) -> bool:
    """Return whether every promise holds in this history with all guards; several guards have the same history."""
    return find() is None


def test_every_guard_is_found_missing_or_has_its_reason_in_a_decision_note() -> None:
    note = (Path(__file__).parents[2] / "docs/decisions/0014-guards-nothing-finds.md").read_text()
    unfound = {name for name, guard in GUARDS.items() if guard.seed is None and name not in DIRECTED}
    assert {name for name in unfound if f"| {name} |" not in note} == set()
    assert {name for name in GUARDS.keys() - unfound if f"| {name} |" in note} == set()


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.slow if each in LONG else pytest.mark.extended) for each in STARTS]
)
def test_every_interleaving_of_two_agents_means_the_same_under_every_compaction(name: str) -> None:
    found = explore(STARTS[name], APPENDS, elections=1, hours=name.count("condemned"))
    assert found.states > 100


@pytest.mark.parametrize("seeds", blocks(first=15, count=20, size=50), ids=str)
def test_every_promise_holds_where_agents_copy_by_fetch(seeds: range) -> None:
    seen: Counter[str] = Counter()
    bad = [seed for seed in seeds if broken(seed, seen=seen, source="fetch") is not None]
    assert bad == [], "replay with: python -m tests.histories.history SEED --source fetch"
    assert [each for each in FETCHED if not seen[each]] == [], "the histories did not exercise what they are for"


@pytest.mark.parametrize("tell", [a_trim_of_another_epoch, a_trim_that_dies_with_its_socket])
def test_every_promise_holds_in_a_history_of_copies_by_fetch(tell: Callable[[], str | None]) -> None:
    assert tell() is None


def test_a_trim_that_outlives_its_deadline_would_lose_records() -> None:
    """This is why `framed_socket` gives no byte to the network after the deadline."""
    broken_promise = a_trim_that_arrives_late()
    assert broken_promise is not None
    assert "LOSS" in broken_promise


@pytest.mark.extended
def test_every_interleaving_of_two_agents_that_copy_by_fetch_means_the_same_under_every_compaction() -> None:
    found = explore([], APPENDS - 2, elections=1, hours=0, make=SmallFetchedWorld)
    assert found.states > 1000


@pytest.mark.parametrize("block", ONE_OF_THREE)
def test_every_promise_holds_in_a_topic_that_is_put_back_to_older_states(block: int) -> None:
    assert broken_by_restores(range(20 + 20 * block, 40 + 20 * block)) is None


@pytest.mark.parametrize("block", ONE_OF_THREE)
def test_nothing_is_deleted_where_a_cluster_and_its_copy_share_a_bucket(block: int) -> None:
    assert broken_by_clones(range(10 + 20 * block, 30 + 20 * block)) is None


@pytest.mark.parametrize("block", ONE_OF_THREE)
def test_nothing_is_lost_while_the_objects_move_to_another_store(block: int) -> None:
    assert broken_by_moves(range(20 + 20 * block, 40 + 20 * block)) is None


def test_a_failing_history_is_shrunk_to_what_breaks_it() -> None:
    needed = {7, 120, 121}
    assert shrink(list(range(200)), lambda steps: "broken" if needed <= set(steps) else None) == sorted(needed)


def test_a_history_is_told_by_its_seed() -> None:
    one: Counter[str] = Counter()
    two: Counter[str] = Counter()
    broken(41, seen=one)
    broken(41, seen=two)
    assert one == two
    assert one["landed"] > 5
