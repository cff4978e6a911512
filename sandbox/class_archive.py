"""A class data sharing archive of Kafka's classes next to the jars, which makes brokers start faster.

Formatting the first broker on a machine creates the archive. Until it answers, a broker needs 3.6 s of processor time
without the archive, 2.8 s with it. A JVM that cannot use the archive logs that and continues. Java 17 cannot use it if
the jars' path has characters that a URL escapes, such as a space (JDK-8339460, fixed in Java 24).
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from .artifacts import cache_folder


class ClassArchive:
    """The archive for one Java and the jars of one release. Jars outside tierstate's cache folder have no archive."""

    def __init__(self, java: str, libs: Path) -> None:
        status = os.stat(java)
        self._path = libs.with_name(f"classes-{status.st_ino:x}-{status.st_mtime_ns:x}.jsa")
        self._kept = libs.parent.parent == cache_folder()
        self._part = self._path.with_name(f"{self._path.name}.{os.getpid()}-{id(self):x}.part")

    def options(self, *, make: bool = False) -> list[str]:
        """Return JVM options to use the archive, or with ``make`` to write a missing one (then `keep` or `drop` it)."""
        if not self._kept:
            return []
        if self._path.is_file():
            return [f"-XX:SharedArchiveFile={self._path}"]
        return [f"-XX:ArchiveClassesAtExit={self._part}"] if make else []

    def keep(self) -> None:
        """Move a written archive to its final path, if there is one. It may replace an equal one of another process."""
        with suppress(FileNotFoundError):
            self._part.replace(self._path)

    def drop(self) -> None:
        """Remove an archive that a failed JVM wrote, because that archive has only a few classes."""
        self._part.unlink(missing_ok=True)
