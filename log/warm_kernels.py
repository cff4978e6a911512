"""Load every kernel before the first call needs it.

Compiling all kernels takes 10 seconds of CPU time, loading them 0.1 seconds. ``python -m tierstate.log.warm_kernels``
compiles all kernels into the environment's folder, or into $NUMBA_CACHE_DIR (`kernel_folder.py`).
"""

from __future__ import annotations

import os
from contextlib import suppress

from .kernel_folder import environments_folder

WAY_OUT = (
    "run `python -m tierstate.log.warm_kernels` where the image or the archive of the Python environment is made; "
    "see docs/options.md"
)


def load_all() -> None:
    """Load or compile every kernel, for a process that must not do so at the first call."""
    from . import avro_kernels, json_kernels, kernels, object_kernels, search_kernels  # noqa: F401  each adds to `Kernel.every`
    from .lazy_kernel import Kernel

    for kernel in Kernel.every:
        kernel.load()


def main() -> None:
    """Create the folder, compile every kernel into it, and print its path."""
    if "NUMBA_CACHE_DIR" not in os.environ:
        with suppress(OSError):
            environments_folder().mkdir(parents=True, exist_ok=True)
    load_all()
    from .lazy_kernel import FOLDER, compiled_here  # chooses the folder when it is imported

    print(f"{'compiled into' if compiled_here() else 'warm already:'} {FOLDER}")


if __name__ == "__main__":
    main()
