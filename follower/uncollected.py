"""Load many values at once without Python's cycle collector looking through them again and again.

Facts are trees: nothing in them is ever freed by that collector, but a load of a hundred thousand of them makes it
traverse all of them several times, which was seen to take a quarter of the load.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_loads = 0
_was_enabled = False


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause the cycle collector, for a second at most: no cycle of the whole process is freed during that time.

    Loads may overlap, on any thread.
    """
    global _loads, _was_enabled
    with _lock:
        if _loads == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _loads += 1
    try:
        yield
    finally:
        with _lock:
            _loads -= 1
            if _loads == 0 and _was_enabled:
                gc.enable()
