"""Run by `.ci/wheel` in a fresh environment that holds only the wheel and its dependencies."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main(data: Path, checkout: Path) -> None:
    import tierstate

    home = Path(tierstate.__file__).resolve().parent
    assert not home.is_relative_to(checkout), f"the checkout was imported, not the wheel: {home}"
    for room in ("api", "broker", "cli", "consumer", "fetch", "follower", "leader", "log", "runtime", "sandbox"):
        assert (home / room / "__init__.py").exists(), f"the wheel has no {room}"
    assert (home / "py.typed").exists()
    assert list((home / "schemas").glob("*.avsc")), "the wheel has no schemas"
    folder = data / "kafka-logs" / "zstd" / "gold-s7b-zstd-0"
    command = [str(Path(sys.executable).parent / "tierstate"), "dump-log", str(folder), "--json"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert len(lines) > 1000, f"dump-log printed {len(lines)} records"
    print(f"the wheel works alone: {len(lines)} records decoded from a broker's folder")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]).resolve())
