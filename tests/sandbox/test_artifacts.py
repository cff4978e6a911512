"""Kafka's jars are the committed ones, or they are not used."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tierstate.sandbox.artifacts import NEWEST, RELEASES, check_sums, committed_sums, find_java, kafka_libs, write_stamp
from tierstate.sandbox.ports import PortLease
from tierstate.state.errors import CorruptData, InvalidRequest

KAFKA_LIBS = "from tierstate.sandbox.artifacts import kafka_libs; print(kafka_libs())"
LIBS_OF = "import sys; from tierstate.sandbox.artifacts import kafka_libs; print(kafka_libs(release=sys.argv[1]))"


@pytest.fixture
def cached(tmp_path: Path) -> Path:
    """Return a cache that holds all jars, linked to the real ones, which a damaged copy must not touch."""
    home = tmp_path / "tierstate" / "kafka-4.3.0"
    (home / "libs").mkdir(parents=True)
    real = kafka_libs()
    for name in committed_sums():
        (home / "libs" / name).symlink_to(real / name)
    write_stamp(home, committed_sums())
    return home


def ask_without_java(cache: Path) -> subprocess.CompletedProcess[str]:
    """Ask for the jars where none can be fetched: there is no Java on the path."""
    env = {name: value for name, value in os.environ.items() if name not in ("TIERSTATE_KAFKA_LIBS", "JAVA_HOME")}
    env |= {"XDG_CACHE_HOME": str(cache), "PATH": str(cache)}
    return subprocess.run([sys.executable, "-c", KAFKA_LIBS], env=env, capture_output=True, text=True, check=False)


def test_a_whole_cache_needs_neither_java_nor_network(cached: Path) -> None:
    assert ask_without_java(cached.parent.parent).stdout.strip() == str(cached / "libs")


def test_a_jar_of_another_size_is_fetched_again(cached: Path) -> None:
    jar = cached / "libs" / "kafka-clients-4.3.0.jar"
    shutil.copy(jar.resolve(), copy := jar.with_suffix(".copy"))
    copy.rename(jar)
    assert ask_without_java(cached.parent.parent).returncode == 0
    with jar.open("ab") as damaged:
        damaged.write(b"!")
    answer = ask_without_java(cached.parent.parent)
    assert answer.returncode != 0
    assert "needs Java 17 or newer" in answer.stderr
    assert "apt-get install openjdk-17-jre-headless" in answer.stderr


def test_a_missing_jar_is_fetched_again(cached: Path) -> None:
    (cached / "libs" / "kafka-clients-4.3.0.jar").unlink()
    assert "needs Java 17" in ask_without_java(cached.parent.parent).stderr


def test_jars_checked_against_an_older_list_are_fetched_again(cached: Path) -> None:
    older = committed_sums() | {"kafka-clients-4.3.0.jar": "0" * 64}
    write_stamp(cached, older)
    assert "needs Java 17" in ask_without_java(cached.parent.parent).stderr


def test_a_fetched_jar_with_one_flipped_bit_is_refused(cached: Path) -> None:
    jar = cached / "libs" / "kafka-clients-4.3.0.jar"
    content = bytearray(jar.read_bytes())
    content[1000] ^= 1
    jar.unlink()
    jar.write_bytes(content)
    with pytest.raises(CorruptData, match=r"SHA-256.*kafka-clients-4\.3\.0\.jar"):
        check_sums(cached / "libs", committed_sums())


def test_a_fetched_jar_that_is_not_committed_is_refused(cached: Path) -> None:
    (cached / "libs" / "extra.jar").write_bytes(b"")
    with pytest.raises(CorruptData, match=r"extra\.jar"):
        check_sums(cached / "libs", committed_sums())


def test_a_process_that_waited_for_another_fetch_takes_its_jars(cached: Path, tmp_path: Path) -> None:
    home = cached.rename(tmp_path / "not-yet-there")
    (lock := cached.with_name("kafka-4.3.0.lock")).touch()
    env = {name: value for name, value in os.environ.items() if name not in ("TIERSTATE_KAFKA_LIBS", "JAVA_HOME")}
    env |= {"XDG_CACHE_HOME": str(tmp_path), "PATH": str(tmp_path)}
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with subprocess.Popen([sys.executable, "-c", KAFKA_LIBS], env=env, stdout=subprocess.PIPE, text=True) as other:
            while str(lock.stat().st_ino) not in Path("/proc/locks").read_text().partition("->")[2]:
                assert other.poll() is None, "it did not wait"
            home.rename(cached)
            fcntl.flock(held, fcntl.LOCK_UN)
            answer, _ = other.communicate()
    assert answer.strip() == str(cached / "libs")


def test_existing_jars_are_taken(cached: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", KAFKA_LIBS]
    env = os.environ | {"TIERSTATE_KAFKA_LIBS": str(cached / "libs"), "PATH": ""}
    process = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert process.stdout.strip() == str(cached / "libs")
    env["TIERSTATE_KAFKA_LIBS"] = str(tmp_path)
    wrong = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert "TIERSTATE_KAFKA_LIBS has no kafka_2.13 jar" in wrong.stderr


def test_given_jars_stand_for_another_release_only_when_they_are_of_it(tmp_path: Path) -> None:
    (jars := tmp_path / "given").mkdir()
    (jars / f"kafka_2.13-{NEWEST}.jar").touch()
    env = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    env |= {"TIERSTATE_KAFKA_LIBS": str(jars), "XDG_CACHE_HOME": str(tmp_path), "PATH": str(tmp_path)}
    command = [sys.executable, "-c", LIBS_OF, "3.9.1"]
    fetching = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert "needs Java 17" in fetching.stderr
    (jars / "kafka_2.13-3.9.1.jar").touch()
    taken = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert taken.stdout.strip() == str(jars)


def test_a_release_without_committed_sums_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"no such release.*2\.8\.0.*3\.9\.1"):
        kafka_libs(release="2.8.0")


@pytest.mark.parametrize("release", RELEASES)
def test_the_jars_of_a_release_are_its_own_and_one_logging_binding(release: str) -> None:
    names = committed_sums(release)
    assert {f"kafka_2.13-{release}.jar", f"kafka-storage-{release}-test.jar"} <= names.keys()
    assert {name for name in names if name.startswith("kafka")} == {
        name for name in names if name.startswith("kafka") and release in name
    }
    assert [name for name in names if name.startswith("slf4j-") and "api" not in name] == ["slf4j-simple-1.7.36.jar"]


def fake_java(folder: Path, version: str) -> Path:
    java = folder / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return folder


def test_an_old_java_is_refused_and_a_new_one_taken(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"Java 17 or newer.*version=11"):
        find_java({"PATH": str(fake_java(tmp_path, "11.0.2"))})
    assert find_java({"PATH": str(fake_java(tmp_path, "21.0.1"))}) == str(tmp_path / "java")


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    (home := tmp_path / "home" / "bin").mkdir(parents=True)
    (path := tmp_path / "path").mkdir()
    fake_java(path, "21.0.1")
    environment = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(path)}
    assert find_java(environment) == str(path / "java")
    fake_java(home, "17.0.1")
    assert find_java(environment) == str(home / "java")


def test_no_two_leases_hold_the_same_port() -> None:
    leases = [PortLease() for _ in range(20)]
    ports = [lease.take() for lease in leases for _ in range(20)]
    for lease in leases:
        lease.release()
    assert len(set(ports)) == len(ports)


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
def test_a_fresh_machine_fetches_exactly_the_committed_jars(tmp_path: Path, release: str) -> None:
    env = {name: value for name, value in os.environ.items() if name != "TIERSTATE_KAFKA_LIBS"}
    env |= {"XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-c", LIBS_OF, release]
    fetched = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    check_sums(Path(fetched.stdout.strip()), committed_sums(release))
    assert {path.name for path in (tmp_path / "tierstate").iterdir()} == {f"kafka-{release}", f"kafka-{release}.lock"}
