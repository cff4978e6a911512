"""Find a Java that can run Kafka 4."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping

from ..state.errors import InvalidRequest

OLDEST = 17
INSTALL = "sudo apt-get install openjdk-17-jre-headless (Debian, Ubuntu) or brew install openjdk@17 (macOS)"


def find_java(environment: Mapping[str, str] | None = None) -> str:
    """Return the path of ``java``: ``$JAVA_HOME/bin/java`` if it exists, else the ``java`` on ``$PATH``.

    Raises InvalidRequest, which names the install command, if no Java is found or Java is older than 17.
    """
    environment = os.environ if environment is None else environment
    home = environment.get("JAVA_HOME")
    java = shutil.which(os.path.join(home, "bin", "java")) if home else None
    java = java or shutil.which("java", path=environment.get("PATH", os.defpath))
    if java is None:
        raise InvalidRequest(f"a local Kafka needs Java {OLDEST} or newer, and none was found. Install it: {INSTALL}")
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    match = re.search(r'version "(\d+)', answer.stderr + answer.stdout)
    if match is None or int(match[1]) < OLDEST:
        raise InvalidRequest(
            f"a local Kafka needs Java {OLDEST} or newer. Install it: {INSTALL}",
            java=java,
            version=match[1] if match else "unknown",
        )
    return java
