"""The small files next to a log are read again when they change, and not while they stay the same."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tierstate.log.partition import FolderFiles, SmallFiles
from tierstate.state.epochs import Lineage
from tierstate.state.errors import CorruptData


class Parsed:
    """The texts that were parsed, in order."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.files = SmallFiles(self._parse)

    def _parse(self, data: bytes, source: str) -> str:
        self.texts.append(data.decode())
        return f"{Path(source).name} says {data.decode()}"


def replaced(file: Path, text: str) -> str:
    """Replace a file as the broker does: a new file takes the old one's name."""
    new = file.with_suffix(".tmp")
    new.write_text(text)
    os.replace(new, file)
    return str(file)


def test_a_file_that_stays_the_same_is_read_once(tmp_path: Path) -> None:
    parsed, file = Parsed(), replaced(tmp_path / "file", "one")
    assert [parsed.files.get(file) for _ in range(3)] == ["file says one"] * 3
    assert parsed.texts == ["one"]


def test_a_file_that_was_replaced_by_one_of_the_same_length_is_read_again(tmp_path: Path) -> None:
    parsed, file = Parsed(), tmp_path / "file"
    assert [parsed.files.get(replaced(file, text)) for text in ("one", "two")] == ["file says one", "file says two"]


def test_a_file_that_went_says_nothing_and_one_that_came_again_is_read(tmp_path: Path) -> None:
    parsed, file = Parsed(), tmp_path / "file"
    assert parsed.files.get(str(file)) is None
    parsed.files.get(replaced(file, "one"))
    file.unlink()
    assert parsed.files.get(str(file)) is None
    assert parsed.files.get(replaced(file, "two")) == "file says two"


def test_unused_files_are_forgotten(tmp_path: Path) -> None:
    parsed, kept, other = Parsed(), replaced(tmp_path / "kept", "one"), replaced(tmp_path / "other", "two")
    for _ in range(2):
        parsed.files.get(kept)
        parsed.files.get(other)
        parsed.files.keep({kept})
    assert parsed.texts == ["one", "two", "two"]


def test_a_damaged_file_is_damaged_at_every_look(tmp_path: Path) -> None:
    replaced(tmp_path / "partition.metadata", "version: 0\n")
    files = FolderFiles()
    for _ in range(2):
        with pytest.raises(CorruptData, match="no topic id"):
            files.topic_id(str(tmp_path))


def test_a_folder_has_the_epochs_of_the_checkpoint_it_has_now(tmp_path: Path) -> None:
    files, checkpoint = FolderFiles(), tmp_path / "leader-epoch-checkpoint"
    assert files.lineage(str(tmp_path)) == Lineage()
    for epoch in (3, 4):
        replaced(checkpoint, f"0\n1\n{epoch} 0\n")
        assert files.lineage(str(tmp_path)) == Lineage.of((epoch, 0))
