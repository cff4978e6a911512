"""Where compiled kernels are kept. Compiling them takes five seconds of CPU, loading them a tenth of one.

    1. $NUMBA_CACHE_DIR, or the user's cache folder          where this process may write
    2. a folder of this user's in the system's temporary one where it may not: with what a warm folder of 1. has in it
    3. nothing                                               every process compiles for itself

Numba names a kernel's folder by the path of its source. A packed environment is unpacked at another path by every Spark
application, so all paths of one source are links to one folder: ``FOLDER/<hash of the source>/kernels``.
Made warm for an image by ``NUMBA_CACHE_DIR=/opt/kernels python -m tierstate.log.kernel_cache``: with the version of
Python and on the kind of processor of where it is read; numba takes no other.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

SHARED = "kernels"
SOURCES = ("kernels.py", "json_kernels.py", "object_kernels.py")
WAY_OUT = (
    "make a warm folder in the image (NUMBA_CACHE_DIR=/opt/kernels python -m tierstate.log.kernel_cache), and give "
    "executors NUMBA_CACHE_DIR; see docs/options.md"
)


def kernel_folder() -> str:
    """The folder, as numba wants it; empty for none."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    try:
        home = Path(given) if given else _users_folder()
        home.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        home = None
    if home is not None and os.access(home, os.W_OK | os.X_OK):
        return str(_by_source(home))
    return _own_folder(home)


def _by_source(home: Path) -> Path:
    """In ``home``, for this source, with this path linked. Without links it is only as numba alone would do."""
    here = Path(os.path.abspath(__file__)).parent
    sources = b"".join((here / name).read_bytes() for name in SOURCES)
    folder = home / hashlib.sha256(sources).hexdigest()[:16]
    with suppress(OSError):
        (folder / SHARED).mkdir(parents=True, exist_ok=True)
        # as `numba.core.caching._CacheLocator.get_suitable_cache_subpath` names it
        (folder / f"{here.name}_{hashlib.sha1(str(here).encode()).hexdigest()}").symlink_to(SHARED)
    return folder


def _users_folder() -> Path:
    """The source may be read-only. RuntimeError: there is no home."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tierstate" / "numba"


def _own_folder(warm: Path | None) -> str:
    """Nobody else may write there*: what numba loads from it is code that runs as this user."""
    try:
        folder = Path(tempfile.gettempdir()) / f"tierstate-kernels-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
            return ""
        if warm is not None:
            _take_over(warm, folder)
    except OSError:
        return ""
    return str(_by_source(folder))


def _take_over(warm: Path, folder: Path) -> None:
    """Each file whole, by a rename: other processes do the same now. What is there already may be newer, and stays."""
    for file in warm.glob(f"*/{SHARED}/*.nb[ci]"):
        target = folder / file.relative_to(warm)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            descriptor, fresh = tempfile.mkstemp(dir=target.parent)
            os.close(descriptor)
            shutil.copyfile(file, fresh)
            os.replace(fresh, target)


def main() -> None:
    from . import json_kernels, kernels, object_kernels  # noqa: F401  they are compiled by this

    print(f"{'compiled into' if kernels.compiled_here() else 'warm already:'} {kernels.FOLDER}")


if __name__ == "__main__":
    main()
