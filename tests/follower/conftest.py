"""Views over the in-memory tier-state topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.follower.checkpointed import NewStore, World
from tests.follower.claimed_bucket import Bucket
from tests.follower.said import PARTITIONS, Topic, identity
from tests.twins.memory_tier_topic import MemoryTierTopic
from tierstate.follower.follower import Follower
from tierstate.follower.following import EVERYTHING, Following
from tierstate.follower.open import open_view
from tierstate.follower.rocksdb_view import RocksView
from tierstate.runtime.clock import SystemClock
from tierstate.schemas.codec import decode_fact
from tierstate.state.view import MemoryView, ViewStore


@pytest.fixture
def said() -> Topic:
    return Topic()


@pytest.fixture(params=["memory", "rocksdb"])
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], ViewStore]]:
    """Yield a function that returns a fresh, empty store; both kinds of stores keep the same contract."""
    stores: list[ViewStore] = []

    def make() -> ViewStore:
        store: ViewStore
        if request.param == "memory":
            store = MemoryView(decode_fact, PARTITIONS)
        else:
            store = RocksView(tmp_path / f"view-{len(stores)}", identity(), decode_fact)
        stores.append(store)
        return store

    yield make
    for store in stores:
        store.close()


@pytest.fixture
def world(new_store: NewStore) -> World:
    """Return a topic and its checkpoints, over both stores."""
    return World(new_store)


@pytest.fixture
def in_memory() -> World:
    """Return the same in memory alone, for what does not depend on the store."""
    return World(lambda: MemoryView(decode_fact, PARTITIONS))


@pytest.fixture
def follow(tmp_path: Path) -> Iterator[Callable[..., Follower]]:
    """Yield a function that starts a follower on disk, in the test's own state folder."""
    followers: list[Follower] = []

    def start(topic: MemoryTierTopic, following: Following = EVERYTHING) -> Follower:
        follower = open_view(topic, "cluster", SystemClock(), following, state_dir=tmp_path / "state")
        followers.append(follower)
        return follower

    yield start
    for follower in followers:
        follower.close()


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture
def topic(bucket: Bucket) -> MemoryTierTopic:
    return MemoryTierTopic(1, clock=bucket.clock)
