"""The package is described in pyproject.toml. This file only refuses a checkout in which links have become files."""

from pathlib import Path

from setuptools import setup

packages = Path(__file__).parent / "src" / "tierstate"
broken = sorted(path.name for path in packages.iterdir() if not path.suffix and not path.is_dir())
if broken:
    raise SystemExit(
        f"src/tierstate/{broken[0]} is a file and not a link to a folder: this checkout has no symbolic links, and the "
        "wheel would be empty. On Windows: git config core.symlinks true, then check out again. A zip archive of "
        "the repository loses them: clone it."
    )
setup()
