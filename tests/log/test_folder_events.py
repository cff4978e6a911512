"""Hints from the system: a file that comes or goes in a partition's folder, and folders that come and go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tierstate.log.folder_events import FolderEvents
from tierstate.log.local_log import LogDirs
from tierstate.state.ids import TopicId, TopicIdPartition

ID = TopicId.of(b"topic id of 16 b")


def add_partition(folder: Path, name: str, topic_id: TopicId = ID) -> Path:
    path = folder / name
    path.mkdir()
    (path / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    add_partition(tmp_path, "t-0")
    add_partition(tmp_path, "t-1")
    return tmp_path


@pytest.fixture
def log(folder: Path) -> Iterator[LogDirs]:
    with LogDirs([folder]) as opened:
        opened.touched()
        opened.partitions()
        opened.touched()
        yield opened


def test_no_event_comes_while_records_are_appended(log: LogDirs, folder: Path) -> None:
    (folder / "t-0" / "0.log").write_text("created")
    log.touched()
    with (folder / "t-0" / "0.log").open("a") as file:
        file.write("appended")
    touched_folders = log.touched()
    assert (touched_folders.names, touched_folders.folders, touched_folders.blind) == (frozenset(), False, False)


@pytest.mark.parametrize("change", ["create", "rename in", "rename out", "delete"])
def test_a_file_that_comes_or_goes_names_its_folder(change: str, log: LogDirs, folder: Path) -> None:
    own, other = folder / "t-1" / "partition.metadata", folder / "other"
    other.write_text("")
    if change == "create":
        (folder / "t-1" / "5.log").write_text("")
    elif change == "rename in":
        other.rename(folder / "t-1" / "5.log")
    elif change == "rename out":
        own.rename(folder / "elsewhere")
    else:
        own.unlink()
    touched_folders = log.touched()
    assert (touched_folders.names, touched_folders.folders) == (frozenset({"t-1"}), False)
    assert log.touched().names == frozenset()


def test_the_broker_s_own_checkpoints_are_no_news(log: LogDirs, folder: Path) -> None:
    (folder / "recovery-point-offset-checkpoint.tmp").write_text("0")
    (folder / "recovery-point-offset-checkpoint.tmp").rename(folder / "recovery-point-offset-checkpoint")
    touched_folders = log.touched()
    assert (touched_folders.names, touched_folders.folders) == (frozenset(), False)


def test_folders_that_come_and_go_are_events_and_new_ones_are_watched(log: LogDirs, folder: Path) -> None:
    add_partition(folder, "t-2")
    assert log.touched().folders
    assert TopicIdPartition(ID, 2) in log.partitions()
    (folder / "t-2" / "0.log").write_text("")
    assert log.touched().names == {"t-2"}
    (folder / "t-2").rename(folder / f"t-2.{'a' * 32}-delete")
    assert log.touched().folders
    assert TopicIdPartition(ID, 2) not in log.partitions()


def test_a_folder_whose_topic_id_comes_later_is_watched_until_then(log: LogDirs, folder: Path) -> None:
    """The broker creates the folder before the topic id."""
    (folder / "t-3").mkdir()
    log.touched()
    assert TopicIdPartition(ID, 3) not in log.partitions()
    (folder / "t-3" / "partition.metadata").write_text(f"version: 0\ntopic_id: {ID}\n")
    assert log.touched().names == {"t-3"}
    assert TopicIdPartition(ID, 3) in log.partitions()


def test_a_topic_id_that_changes_in_place_is_read_again(log: LogDirs, folder: Path) -> None:
    """The change is noticed without a hint."""
    another = TopicId.of(b"topic id no. two")
    (folder / "t-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {another}\n")
    assert log.partitions() == {TopicIdPartition(another, 0): "t", TopicIdPartition(ID, 1): "t"}


def test_events_before_the_first_question_are_unknown(folder: Path) -> None:
    with LogDirs([folder]) as log:
        assert log.touched().folders


def test_a_watch_that_misses_a_folder_says_that_it_is_blind(folder: Path) -> None:
    watch = FolderEvents([folder])
    assert not watch.touched().blind
    watch.watch([str(folder / "gone-meanwhile-0")])
    assert not watch.touched().blind
    watch.close()
    watch.watch([str(folder / "t-0")])
    assert watch.touched().blind
