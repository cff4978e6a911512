"""Tests how an agent knows restarted agents, agents of a copied cluster, and agents that read logs in another way."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.twins.counting_ids import CountingIds
from tests.twins.manual_clock import ManualClock
from tests.twins.memory_tier_topic import MemoryTierTopic
from tierstate.app.opening.connection import Connection
from tierstate.app.operating import prefix
from tierstate.app.operating.prefix import folders_id, require_one_source
from tierstate.cli.context import Context
from tierstate.follower.heartbeat import Claimant
from tierstate.follower.prefix_claim import PrefixClaim
from tierstate.runtime.listener import Event, HeartbeatsAwaited
from tierstate.runtime.settings import Settings
from tierstate.storage.memory import MemoryStore


def test_folders_that_were_copied_under_the_same_name_are_another_place(tmp_path: Path) -> None:
    folder, copy = tmp_path / "data", tmp_path / "copy"
    folder.mkdir()
    before = folders_id([folder])
    (folder / "grows").touch()
    assert folders_id([folder]) == before, "a restart is at the same place"
    shutil.copytree(folder, copy)
    folder.rename(tmp_path / "away")
    copy.rename(folder)
    assert folders_id([folder]) != before


def test_a_host_that_boots_anew_may_be_a_copy_of_its_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boot = tmp_path / "boot_id"
    monkeypatch.setattr(prefix, "_BOOT_ID", boot)
    found = set()
    for each in ("one", "two"):
        boot.write_text(f"{each}\n")
        found.add(folders_id([tmp_path]))
    boot.unlink()
    found.add(folders_id([tmp_path]))
    assert len(found) == 3


def test_a_process_says_for_which_agents_it_waits_and_how_long(capsys: pytest.CaptureFixture[str]) -> None:
    clock, topic, events = ManualClock(), MemoryTierTopic(), list[Event]()
    store = MemoryStore(clock)
    PrefixClaim(topic, store, Claimant("memory", 1, "host1", "", 20.0, 0.0), clock, CountingIds()).beat()
    settings = Settings.model_validate({"agent": {"source": "fetch"}, "prefix": {"heartbeat": "20s"}})
    parts = {"store": store, "cluster_id": "memory", "topic": topic, "clock": clock, "listener": events.append}
    began = clock.monotonic()
    require_one_source(cast(Connection, SimpleNamespace(settings=settings, **parts)))
    assert events == [HeartbeatsAwaited("broker 1 at host1", 40.0)]
    assert clock.monotonic() - began == 40.0
    Context().note_event(events[0])
    assert "waiting 40 s for the next heartbeats, if they run: broker 1 at host1" in capsys.readouterr().err
