"""A broker's classes are taken from the archive that the machine's first broker made, and never from half of one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tierstate.sandbox.artifacts import find_java, kafka_libs
from tierstate.sandbox.process import ClassArchive

pytestmark = pytest.mark.extended


@pytest.fixture
def libs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return Kafka's jars in an empty cache: copies, for a JVM follows links, and the real cache may have any name."""
    return cached(tmp_path, monkeypatch)


def cached(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    libs = folder / "tierstate" / "kafka-4.3.0" / "libs"
    shutil.copytree(kafka_libs(), libs)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return libs


def run(libs: Path, options: list[str]) -> str:
    """Return a JVM's output about the classes that it loads for a tool's help."""
    command = [find_java(), *options, "-Xlog:class+load", "-cp", f"{libs}/*", "kafka.tools.StorageTool", "--help"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def test_the_second_jvm_takes_kafkas_classes_from_what_the_first_left(libs: Path) -> None:
    first = ClassArchive(find_java(), libs)
    assert first.options() == []
    assert "StorageTool source: file:" in run(libs, first.options(make=True))
    first.keep()
    second = ClassArchive(find_java(), libs)
    assert "StorageTool source: shared objects file" in run(libs, second.options(make=True))
    assert len(list(libs.parent.glob("*.jsa*"))) == 1


def test_an_archive_below_a_folder_with_a_space_is_in_no_jvms_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    libs = cached(tmp_path / "a cache", monkeypatch)
    archive = ClassArchive(find_java(), libs)
    run(libs, archive.options(make=True))
    archive.keep()
    (option,) = archive.options()
    assert option == f"-XX:SharedArchiveFile={next(libs.parent.glob('*.jsa'))}"
    assert "StorageTool source: " in run(libs, [option])


def test_the_archive_of_a_failed_jvm_is_not_kept(libs: Path) -> None:
    archive = ClassArchive(find_java(), libs)
    (option,) = archive.options(make=True)
    Path(option.partition("=")[2]).write_bytes(b"half")
    archive.drop()
    archive.keep()
    assert archive.options() == []
    assert list(libs.parent.glob("*.jsa*")) == []


def test_jars_of_a_foreign_folder_get_none(libs: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs").symlink_to(libs)
    assert ClassArchive(find_java(), tmp_path / "theirs").options(make=True) == []
