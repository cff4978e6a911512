"""Run by `.ci/wheel` in a fresh environment that holds only the wheel: with its core, then with the extra columns."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path


def core(logs: Path) -> None:
    """Check what an agent, a proxy and an operator install: neither numba nor Arrow."""
    assert not [name for name in ("numba", "llvmlite", "pyarrow") if find_spec(name)], "this is not the core alone"
    count = printed(logs)
    assert "the extra [columns]" in refused("consume", "t", "--bootstrap-server", "127.0.0.1:1")
    assert "the extra [columns]" in refused("export", "t", "--into", Path.cwd().as_uri())
    assert "the extra [gateway]" in refused("gateway", "--bootstrap-server", "127.0.0.1:1")
    modules = "tierstate.app.operating.agent, tierstate.proxy.open, tierstate.fetch.open"
    import_it = [sys.executable, "-c", f"import {modules}"]
    subprocess.run(import_it, check=True, timeout=60)
    read = subprocess.run([sys.executable, "-c", "import tierstate; tierstate.connect"], capture_output=True, text=True)
    assert "MissingExtra: tierstate.connect needs the extra [columns]" in read.stderr, read.stderr
    print(f"the wheel works without numba: {count} records of a broker's folder; a missing extra is named")


def columns(logs: Path) -> None:
    """Check what reads records: it prints the same lines, and has the whole Python API."""
    import tierstate

    assert callable(tierstate.connect)
    count = printed(logs)
    warmed = subprocess.run([sys.executable, "-m", "tierstate.log.warm_kernels"], capture_output=True, text=True)
    assert warmed.stdout.startswith(f"compiled into {sys.prefix}/share/tierstate/kernels/"), warmed
    digest = (
        "from pathlib import Path; import sys; from tierstate.log.folder import open_log\n"
        "from tierstate.log.record_digest import RecordDigest; from tierstate.log.lazy_kernel import compiled_here\n"
        "found = RecordDigest()\n"
        "for piece in open_log(Path(sys.argv[1])).pieces(committed=False):\n"
        "    for block in piece.blocks(): found.update(block)\n"
        "print(found.count, compiled_here())"
    )
    folder = str(logs / "zstd" / "gold-s7b-zstd-0")
    read = subprocess.run([sys.executable, "-c", digest, folder], capture_output=True, text=True)
    assert read.stdout == f"{count} False\n", read
    print(f"and with columns: {count} records by kernels that the environment carries")


def printed(logs: Path) -> int:
    """Return how many records `dump-log` prints as the first command of this environment. It waits for no compiler."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    lines = tierstate_command("dump-log", str(logs / "zstd" / "gold-s7b-zstd-0"), "--json").stdout.splitlines()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert len(lines) > 1000, f"dump-log printed {len(lines)} records"
    assert not (Path.cwd() / "cache").exists(), "it compiled, or loaded, kernels"
    print(f"dump-log: {cpu:.2f} s of CPU")
    return len(lines)


def refused(*arguments: str) -> str:
    return tierstate_command(*arguments, "--store", Path.cwd().as_uri(), accept=2).stderr


def tierstate_command(*arguments: str, accept: int = 0) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "tierstate"), *arguments]
    environment = os.environ | {"XDG_CACHE_HOME": str(Path.cwd() / "cache")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == accept, (arguments, done.returncode, done.stderr)
    return done


def main(kind: str, logs: Path, checkout: Path) -> None:
    import tierstate

    home = Path(tierstate.__file__).resolve().parent
    assert not home.is_relative_to(checkout), f"the checkout was imported, not the wheel: {home}"
    assert (home / "py.typed").exists()
    assert list((home / "schemas").glob("*.avsc")), "the wheel has no schemas"
    assert find_spec("fastapi") is None, "this environment is not the core alone"
    assert find_spec("pyspark") is None, "this environment is not the core alone"
    {"core": core, "columns": columns}[kind](logs)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]).resolve())
