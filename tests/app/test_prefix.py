"""Tests `folders_id`, which distinguishes a restarted agent from the agent of a copied cluster."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tierstate.app.operating import prefix
from tierstate.app.operating.prefix import folders_id


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
