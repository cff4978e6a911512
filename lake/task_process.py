"""All that a task needs, loaded once by the server that its processes are forked from. Nothing here starts a thread."""

from __future__ import annotations

from ..fetch import split
from ..log import decode
from . import check, jobs, task

__all__ = ["check", "decode", "jobs", "split", "task"]
