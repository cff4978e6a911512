"""Spark's daemon of Python workers, which loads the reading code before it forks them.

Spark ends a worker whose task stops early, as in ``head``, ``isEmpty`` and ``LIMIT``, and every new worker otherwise
spends 1 s of CPU time on imports. `sessions.session` sets this module as ``spark.python.daemon.module``.
"""

from __future__ import annotations

import gc
from contextlib import suppress

from pyspark.daemon import manager


def load() -> None:
    """Import the reading code, except pyarrow and its users: pyarrow starts a thread, which a fork would not have."""
    from ..app.opening import split_reads as split_reads
    from ..broker import open as open
    from ..fetch import piece as piece
    from ..fetch import split as split
    from ..log import kernels as kernels
    from ..log.lazy_kernel import Kernel

    for kernel in Kernel.every:
        kernel.load()


if __name__ == "__main__":
    with suppress(Exception):  # a worker that needs the missing part reports it
        load()
    gc.collect()
    gc.freeze()  # a collection in a worker then copies none of these pages
    manager()
