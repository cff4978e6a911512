"""A class data sharing archive of Kafka's classes next to the jars, so that a JVM starts a broker with less work.

Formatting the first broker on a machine creates the archive. A broker needs 3.6 s of processor time until it answers
without it, 2.8 s with it. A JVM that cannot use it logs that and continues without. Java 17 finds none of Kafka's
classes in it if the jars' path has characters that a URL escapes, such as a space (JDK-8339460, fixed in Java 24).
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from .artifacts import cache_folder


class ClassArchive:
    """The archive for one Java and the jars of one release. Jars outside our cache folder have none."""

    def __init__(self, java: str, libs: Path) -> None:
        status = os.stat(java)
        self._path = libs.with_name(f"classes-{status.st_ino:x}-{status.st_mtime_ns:x}.jsa")
        self._kept = libs.parent.parent == cache_folder()
        self._part = self._path.with_name(f"{self._path.name}.{os.getpid()}-{id(self):x}.part")

    def options(self, *, make: bool = False) -> list[str]:
        """Return a JVM's options to use the archive; ``make`` writes a missing one at exit, for `keep` or `drop`."""
        if not self._kept:
            return []
        if self._path.is_file():
            return [f"-XX:SharedArchiveFile={self._path}"]
        return [f"-XX:ArchiveClassesAtExit={self._part}"] if make else []

    def keep(self) -> None:
        """Put a written archive in its place, if there is one. The last process wins, as all archives are the same."""
        with suppress(FileNotFoundError):
            self._part.replace(self._path)

    def drop(self) -> None:
        """Remove the archive of a JVM that failed, because it has only a few classes."""
        self._part.unlink(missing_ok=True)
