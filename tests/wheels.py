"""Build the wheel of this checkout from a copy, because a build leaves files: ``python -m tests.wheels FOLDER``."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def build_wheel(out: Path) -> Path:
    """Build the wheel into ``out`` from the files that git tracks or would track, and return its path."""
    with tempfile.TemporaryDirectory() as folder:
        return _build(Path(folder) / "checkout with spaces", out)


def _build(source: Path, out: Path) -> Path:
    tracked = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    for name in filter(None, tracked.stdout.split("\0")):
        if name.startswith(("tests/", "docs/")) or not (ROOT / name).exists():
            continue
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_symlink():
            target.symlink_to(os.readlink(ROOT / name))
        else:
            target.write_bytes((ROOT / name).read_bytes())
    for old in out.glob("tierstate-*.whl"):
        old.unlink()
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", "-w", str(out)]
    subprocess.run([*command, str(source)], check=True)
    return next(out.glob("*.whl"))


if __name__ == "__main__":
    print(build_wheel(Path(sys.argv[1])))
