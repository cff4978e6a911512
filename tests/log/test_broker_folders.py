"""A broker with several disks: the agent runs with those that the broker runs with, and reports which it lacks."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tierstate.log import broker_folders
from tierstate.log.broker_folders import NOT_SERVED, BrokerFolders
from tierstate.log.local_log import LogDirs
from tierstate.runtime.listener import Event, LogFolderBack, LogFolderLost
from tierstate.state.errors import InvalidRequest, Unavailable

HOLD = """
import fcntl, sys
files = [open(name, "w") for name in sys.argv[1:]]
[fcntl.lockf(file, fcntl.LOCK_EX) for file in files]
print("held", flush=True)
sys.stdin.read()
"""


def fill(folder: Path, node: int = 1, cluster: str = "c") -> Path:
    folder.mkdir()
    (folder / "meta.properties").write_text(f"version=1\ncluster.id={cluster}\nnode.id={node}\n")
    return folder


@pytest.fixture
def disks(tmp_path: Path) -> tuple[Path, Path]:
    return fill(tmp_path / "a"), fill(tmp_path / "b")


@contextmanager
def broker_on(*folders: Path) -> Iterator[None]:
    """Let another process lock ``.lock`` in each of them, as Kafka does (`java.nio`: POSIX locks)."""
    names = [str(folder / ".lock") for folder in folders]
    with subprocess.Popen([sys.executable, "-c", HOLD, *names], stdin=-1, stdout=-1) as held:
        assert held.stdout is not None
        assert held.stdout.readline() == b"held\n"
        try:
            yield
        finally:
            held.communicate(b"")


def no_folder(folder: Path) -> None:
    folder.rename(folder.with_name("away"))


def a_file(folder: Path) -> None:
    no_folder(folder)
    folder.write_text("")


def no_identity(folder: Path) -> None:
    (folder / "meta.properties").unlink()


def not_ours_to_write(folder: Path) -> None:
    (folder / ".tierstate.lock").mkdir()  # as on a disk that is mounted read-only: it cannot be opened


@pytest.mark.parametrize("lose", [no_folder, a_file, no_identity, not_ours_to_write])
def test_an_agent_starts_with_one_lost_disk_of_two_and_reports_it(
    lose: Callable[[Path], None], disks: tuple[Path, Path]
) -> None:
    events: list[Event] = []
    lose(disks[1])
    with broker_on(disks[0]), LogDirs(disks, listener=events.append) as log:
        assert list(log.broker_folders.live) == [disks[0]]
        (event,) = events
        assert isinstance(event, LogFolderLost)
        assert event.folder == str(disks[1])
        assert str(disks[1]) in event.reason
        log.partitions()
        assert events == [event]


def test_no_agent_starts_without_a_disk(disks: tuple[Path, Path]) -> None:
    for disk in disks:
        no_identity(disk)
    with pytest.raises(InvalidRequest, match="not a log folder of a broker"):
        BrokerFolders(disks)


def test_a_disk_that_the_broker_serves_and_the_agent_cannot_use_is_no_lost_one(disks: tuple[Path, Path]) -> None:
    not_ours_to_write(disks[1])
    with broker_on(*disks), pytest.raises(InvalidRequest, match="cannot write into the broker's log folder"):
        BrokerFolders(disks)


def test_disks_of_two_brokers_are_refused(disks: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="different brokers"):
        BrokerFolders([disks[0], fill(tmp_path / "other", node=2)])


def test_a_disk_that_the_broker_gave_up_is_left_alone_however_well_it_reads(disks: tuple[Path, Path]) -> None:
    """Its replicas may go on elsewhere: its data is stale."""
    with broker_on(disks[0]), LogDirs(disks) as log:
        assert (log.broker_folders.live, log.broker_folders.lost) == (disks[:1], {disks[1]: NOT_SERVED})
        assert all(".tierstate.lock" not in opened for opened in open_files(disks[1]))


def open_files(folder: Path) -> list[str]:
    paths = []
    for each in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(each)
        except FileNotFoundError:
            continue
        paths += [target] if target.startswith(f"{folder}/") else []
    return paths


def test_while_the_broker_is_down_every_disk_that_can_be_read_counts(disks: tuple[Path, Path]) -> None:
    for disk in disks:
        (disk / ".lock").write_text("")
    with LogDirs(disks) as log:
        assert log.broker_folders.live == disks


def test_a_lost_disk_is_back_once_the_broker_has_locked_it_again_and_not_before(disks: tuple[Path, Path]) -> None:
    events: list[Event] = []
    with LogDirs(disks, listener=events.append) as log:
        a_file(disks[1])
        with broker_on(disks[0]):
            log.partitions()
            assert list(log.broker_folders.live) == [disks[0]]
            disks[1].unlink()
            disks[1].with_name("away").rename(disks[1])
            log.partitions()
            assert list(log.broker_folders.live) == [disks[0]]
        log.partitions()
        assert list(log.broker_folders.live) == [disks[0]]
        with broker_on(*disks):
            log.partitions()
            assert list(log.broker_folders.live) == [*disks]
            (disks[1] / "orders-0").mkdir()
            assert log.touched().folders
        assert [type(event) for event in events] == [LogFolderLost, LogFolderBack]


def test_a_disk_that_another_broker_took_is_lost(disks: tuple[Path, Path]) -> None:
    with LogDirs(disks) as log:
        (disks[1] / "meta.properties").write_text("cluster.id=c\nnode.id=7\n")
        log.partitions()
        assert "another broker's" in log.broker_folders.lost[disks[1]]


def test_when_every_disk_is_lost_nothing_is_listed(disks: tuple[Path, Path]) -> None:
    with LogDirs(disks) as log:
        for disk in disks:
            no_identity(disk)
        with pytest.raises(Unavailable, match="cannot be read"):
            log.partitions()


def test_a_process_that_has_no_file_left_to_open_loses_no_disk(
    disks: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(folder: Path) -> None:
        raise OSError(errno.EMFILE, "too many open files", str(folder))

    with LogDirs(disks) as log:
        monkeypatch.setattr(broker_folders, "_meta_properties", short)
        with pytest.raises(Unavailable, match="cannot be read"):
            log.partitions()
        assert log.broker_folders.live == disks


def test_each_broker_has_one_agent_and_commands_are_none(disks: tuple[Path, Path]) -> None:
    with LogDirs(disks):
        with pytest.raises(Unavailable, match="another agent"):
            LogDirs(disks)
        with LogDirs(disks, alone=False) as looking:
            assert looking.broker_folders.live == disks
