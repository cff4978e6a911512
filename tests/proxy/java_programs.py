"""Java programs of one file each, run from their source by a JDK: clients that have no Python binding."""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tierstate.sandbox.artifacts import find_java, kafka_libs

HERE = Path(__file__).parent / "java"


def java_program(name: str, *jars: Path) -> list[str]:
    """Return the command; arguments follow. ``jars`` are folders. Skips the test where a Java has no compiler."""
    _needs_a_compiler()
    return java(str(HERE / f"{name}.java"), *jars)


@functools.cache
def compiled_program(name: str, jars: Path) -> list[str]:
    """Return the command of a program that is compiled first, with the other sources that it uses.

    Class loaders of other threads find no classes of a program that Java runs from its source.
    """
    _needs_a_compiler()
    folder = Path(tempfile.mkdtemp(prefix="tierstate-java-"))
    atexit.register(shutil.rmtree, folder)
    command = [find_java(), "-m", "jdk.compiler/com.sun.tools.javac.Main", "-d", str(folder)]
    command += ["-cp", ":".join(map(str, jars.iterdir())), "-sourcepath", str(HERE), str(HERE / f"{name}.java")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return java(name, folder, jars)


def java(main: str, *folders: Path) -> list[str]:
    """Return the command for a class or a source, with jars or folders of classes."""
    path = ":".join(f"{folder}/*:{folder}" for folder in folders)
    return [find_java(), "-Xmx256m", "-XX:+UseSerialGC", "-cp", path, main]


def _needs_a_compiler() -> None:
    modules = subprocess.run([find_java(), "--list-modules"], capture_output=True, text=True, check=True).stdout
    if "jdk.compiler" not in modules:
        pytest.skip("a JDK is needed, and there is only a Java runtime")


class Readers:
    """Java consumers at several places of one topic."""

    def __init__(self, bootstrap: str, topic: str, offsets: list[int]) -> None:
        command = [*java_program("Reader", kafka_libs()), bootstrap, topic, *map(str, offsets)]
        self._count = len(offsets)
        self._java = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def begin(self, records: int) -> None:
        assert self._java.stdin is not None
        self._java.stdin.write(f"{records}\n")
        self._java.stdin.flush()

    def said(self) -> list[str]:
        """Return each consumer's output, in the order of its offsets."""
        assert self._java.stdout is not None
        return [self._java.stdout.readline().strip() for _ in range(self._count)]

    def close(self) -> None:
        self._java.kill()
        self._java.communicate()
