"""Java programs of a file each, run from their source by a JDK: clients that no Python binding has."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tierstate.sandbox.java import find_java

HERE = Path(__file__).parent / "java"


def java_program(name: str, *jars: Path) -> list[str]:
    """The command; arguments follow. Skips the test where there is a Java and no compiler."""
    modules = subprocess.run([find_java(), "--list-modules"], capture_output=True, text=True, check=True).stdout
    if "jdk.compiler" not in modules:
        pytest.skip("a JDK is needed, and there is only a Java runtime")
    path = ":".join(str(jar / "*" if jar.is_dir() else jar) for jar in jars)
    return [find_java(), "-Xmx256m", "-XX:+UseSerialGC", "-cp", path, str(HERE / f"{name}.java")]
