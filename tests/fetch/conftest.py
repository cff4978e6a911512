"""A golden partition folder in two tiers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fetch.two_tiers import GOLDEN, Folder, FolderTier, Golden, OneTopic, TwoTiers
from tierstate.broker.tier_topic import TierTopic
from tierstate.fetch.reader import LogReader
from tierstate.fetch.remote import RemoteTier
from tierstate.runtime.clock import Clock, SystemClock
from tierstate.runtime.listener import RemoteFetched
from tierstate.state.ids import TopicId, TopicIdPartition
from tierstate.state.segment import Compression
from tierstate.storage.memory import MemoryStore
from tierstate.storage.object_store import ObjectStore
from tierstate.storage.segment.cache import ChunkCache


@pytest.fixture
def golden_log() -> Iterator[Callable[..., Golden]]:
    with golden_logs() as make:
        yield make


@contextmanager
def golden_logs() -> Iterator[Callable[..., Golden]]:
    """Yield what `golden_log` yields, for a fixture that lives longer than a test."""
    logs: list[Golden] = []

    def make(
        case: str = "transactions",
        *,
        copies: int | None = None,
        prefetch: int = 0,
        topic: TierTopic | None = None,
        path: Path | None = None,
        clock: Clock | None = None,
        store: ObjectStore | None = None,
        compression: Compression = Compression.ZSTD,
        **copy: Any,
    ) -> Golden:
        """``path``: of a folder other than the golden one. ``store``: replaces the twin, which runs ``gets``."""
        folder = Folder(path or next(path for path in (GOLDEN / case).iterdir() if path.is_dir()))
        place = TopicIdPartition(TopicId.of(b"golden-topic-id!"), 0)
        gets: list[Callable[[str], None]] = []

        def between(operation: str, key: str, writes: int) -> None:
            if operation == "get" and gets:
                gets.pop(0)(key)

        tiers = TwoTiers(place, "t", store or MemoryStore(SystemClock(), between), topic)
        tiers.compression = compression
        segments = tiers.copy_all(folder, copies, **copy)
        local = FolderTier(folder, place, "t")
        fetched: list[RemoteFetched] = []
        remote = RemoteTier(
            tiers.store,
            ChunkCache(1 << 20),
            SystemClock(),
            prefetch=prefetch,
            listener=lambda event: fetched.append(event) if isinstance(event, RemoteFetched) else None,
        )
        control = OneTopic("t", place.topic_id)
        seam: Any = control
        reader = LogReader(tiers.view, seam, local, remote, clock or SystemClock())
        logs.append(Golden(folder, tiers, local, reader, remote, segments, gets, fetched, control))
        return logs[-1]

    yield make
    for golden in logs:
        golden.reader.close()
        golden.tiers.view.close()
