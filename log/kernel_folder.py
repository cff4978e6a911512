"""Choose the folder of compiled kernels. It is the first of these that this process may write to:

    1. $NUMBA_CACHE_DIR, or ``share/tierstate/kernels`` of the Python environment where that folder exists
    2. ``tierstate/numba`` in the user's cache folder
    3. a folder of this user in the system's temporary folder
    4. none: every process compiles for itself

The environment's folder moves with it into an image or an archive. No setting is needed: a process with another folder
copies the kernels to it. Kernels work for one version of Python and one kind of processor. ``NUMBA_CPU_NAME=generic``,
set where they are compiled and where they are used, makes them work on every processor of the architecture.

numba names the folder of a kernel by the path of its source. An environment may lie at many paths, so all paths of one
source are links to one folder: ``FOLDER/<hash of the source>/kernels``.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

SHARED = "kernels"
SOURCES = tuple(
    f"{name}.py"
    for name in ("lazy_kernel", "kernels", "search_kernels", "json_kernels", "object_kernels", "avro_kernels")
)


def kernel_folder() -> str:
    """Return the folder for numba's ``CACHE_DIR``, or an empty text if there is none. Creates the folder, and copies
    the kernels of the environment's folder to it."""
    setting, environment = os.environ.get("NUMBA_CACHE_DIR"), environments_folder()
    homes = [Path(setting)] if setting else [environment, *_users_folder()]
    warm = {environment, homes[0]}
    for home in homes:
        with suppress(OSError):
            if home != environment:
                home.mkdir(parents=True, exist_ok=True)
            if home.is_dir() and os.access(home, os.W_OK | os.X_OK):
                _take_over(warm - {home}, home)
                return str(_by_source(home))
    return _temporary_folder(warm)


def environments_folder() -> Path:
    """Return the folder that moves with the Python environment. It exists once `warm_kernels.py` has created it."""
    return Path(sys.prefix) / "share" / "tierstate" / "kernels"


def _users_folder() -> Iterator[Path]:
    with suppress(RuntimeError):  # the user has no home
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tierstate" / "numba"


def _by_source(home: Path) -> Path:
    """Return the folder in ``home`` for this source. Adds a link for this path: else numba compiles once per path."""
    package = Path(os.path.abspath(__file__)).parent
    sources = b"".join((package / name).read_bytes() for name in SOURCES)
    folder = home / hashlib.sha256(sources).hexdigest()[:16]
    with suppress(OSError):
        (folder / SHARED).mkdir(parents=True, exist_ok=True)
        # as `numba.core.caching._CacheLocator.get_suitable_cache_subpath` names it
        (folder / f"{package.name}_{hashlib.sha1(str(package).encode()).hexdigest()}").symlink_to(SHARED)
    return folder


def _temporary_folder(warm: set[Path]) -> str:
    """Return a folder that only this user may write to, because numba loads code from it that runs as this user.
    Returns an empty text if there is none."""
    try:
        folder = Path(tempfile.gettempdir()) / f"tierstate-kernels-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
            return ""
        _take_over(warm, folder)
    except OSError:
        return ""
    return str(_by_source(folder))


def _take_over(warm: set[Path], folder: Path) -> None:
    """Copy the kernels in ``warm`` to ``folder``. Existing files stay, because they may be newer. A rename finishes
    each file, because other processes may copy at the same time."""
    for file in (file for each in warm for file in each.glob(f"*/{SHARED}/*.nb[ci]")):
        target = folder / file.parents[1].name / SHARED / file.name
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            descriptor, fresh = tempfile.mkstemp(dir=target.parent)
            os.close(descriptor)
            shutil.copyfile(file, fresh)
            os.replace(fresh, target)
