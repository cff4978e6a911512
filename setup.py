"""The package is described in pyproject.toml. This file only refuses a checkout in which links have become files."""

from pathlib import Path

from setuptools import setup

rooms = Path(__file__).parent / "src" / "tierstate"
broken = sorted(each.name for each in rooms.iterdir() if not each.suffix and not each.is_dir())
if broken:
    raise SystemExit(
        f"src/tierstate/{broken[0]} is a file and not a link to a folder: this checkout has no symbolic links, and the "
        "wheel would hold nothing. On Windows: git config core.symlinks true, then check out again. A zip archive of "
        "the repository loses them: clone it."
    )
setup()
