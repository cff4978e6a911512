"""Run by `.ci/wheel` in a fresh environment that holds only the wheel and its core dependencies."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path


def main(logs: Path, checkout: Path) -> None:
    import tierstate

    home = Path(tierstate.__file__).resolve().parent
    assert not home.is_relative_to(checkout), f"the checkout was imported, not the wheel: {home}"
    assert (home / "py.typed").exists()
    assert list((home / "schemas").glob("*.avsc")), "the wheel has no schemas"
    assert find_spec("fastapi") is None, "this environment is not the core alone"
    assert find_spec("pyspark") is None, "this environment is not the core alone"
    lines = tierstate_command("dump-log", str(logs / "zstd" / "gold-s7b-zstd-0"), "--json").stdout.splitlines()
    assert len(lines) > 1000, f"dump-log printed {len(lines)} records"
    refused = tierstate_command(
        "gateway", "--bootstrap-server", "127.0.0.1:1", "--store", Path.cwd().as_uri(), accept=2
    )
    assert "tierstate[gateway]" in refused.stderr, refused.stderr
    print(f"the wheel works alone: {len(lines)} records decoded from a broker's folder; a missing extra is named")


def tierstate_command(*arguments: str, accept: int = 0) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "tierstate"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == accept, (arguments, done.returncode, done.stderr)
    return done


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]).resolve())
