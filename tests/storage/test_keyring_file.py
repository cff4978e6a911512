"""A rotation acts without a restart; a damaged file is reported, and changes nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.storage.key_rings import write_ring
from tierstate.runtime.listener import Event, KeyRingRead, KeyRingRefused
from tierstate.state.errors import InvalidRequest
from tierstate.storage.segment.keyring import KeyRingFile

DATA_KEY = bytes(32)


def put(folder: Path, active: str, *key_ids: str) -> Path:
    """Write the ring of the process as `keys new` replaces it."""
    made = write_ring(folder, active, *key_ids)
    return made.replace(folder / "keyring.toml")


def test_the_active_key_of_a_changed_file_wraps_the_next_data_key_and_the_old_one_still_opens(tmp_path: Path) -> None:
    events: list[Event] = []
    ring = KeyRingFile(put(tmp_path, "one", "one"), events.append)
    before = ring.wrap(DATA_KEY)
    put(tmp_path, "two", "one", "two")
    after = ring.wrap(DATA_KEY)
    assert (before[0], after[0]) == ("one", "two")
    assert [ring.unwrap(*before), ring.unwrap(*after)] == [DATA_KEY] * 2
    assert events == [KeyRingRead(str(tmp_path / "keyring.toml"), "two", "one")]


@pytest.mark.parametrize("damage", ["", 'active = "three"\n', None], ids=["empty", "key missing", "gone"])
def test_a_damaged_file_is_reported_once_and_the_old_ring_goes_on(tmp_path: Path, damage: str | None) -> None:
    events: list[Event] = []
    path = put(tmp_path, "one", "one")
    ring = KeyRingFile(path, events.append)
    if damage is None:
        path.unlink()
    else:
        path.write_text(damage)
    assert [ring.wrap(DATA_KEY)[0] for _ in range(3)] == ["one"] * 3
    assert [type(event) for event in events] == [KeyRingRefused]
    put(tmp_path, "two", "one", "two")
    assert ring.wrap(DATA_KEY)[0] == "two"
    assert isinstance(events[-1], KeyRingRead)


def test_without_a_ring_to_begin_with_nothing_begins(tmp_path: Path) -> None:
    path = put(tmp_path, "one", "one")
    shutil.rmtree(tmp_path)
    with pytest.raises(InvalidRequest):
        KeyRingFile(path, print)
