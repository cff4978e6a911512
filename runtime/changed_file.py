"""Whether a file is another one than before, without reading it."""

from __future__ import annotations

import os


def changes_of(found: os.stat_result) -> tuple[int, int, int]:
    """What differs once a file is replaced or written."""
    return found.st_mtime_ns, found.st_size, found.st_ino
