"""A machine with systemd as its first process: systemd-nspawn over an overlay of this machine's own files.

It has this machine's network, so that its services reach a broker of the tests. Nothing that it writes stays.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.wheels import ROOT

PROGRAMS = ("systemd-nspawn", "systemctl", "systemd-analyze", "nsenter")
TARGET = "only-ours.target"
BOOT_S = 120.0
START = """\
#!/opt/tierstate/bin/python
from tierstate.cli.main import main
main()
"""


def missing() -> str:
    """Return the reason why no such machine can be started here; empty if one can."""
    if os.getuid() != 0:
        return "booting systemd needs root"
    programs = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"no {', '.join(programs)} on the PATH" if programs else ""


class Machine:
    """``root``: its files. ``binds``: folders of this machine by their place in it, besides those of the program."""

    def __init__(self, root: Path, binds: Mapping[str, Path]) -> None:
        self.root = root
        self._binds = dict(binds)
        self._process: subprocess.Popen[bytes] | None = None
        self._first = 0
        self._install()

    def _install(self) -> None:
        """Put the program at /opt/tierstate, as the units expect it. Homes are hidden from a service, so that its
        interpreter and its packages are in /opt, too.
        """
        packages = sysconfig.get_path("purelib")
        self._binds |= {"/opt/python": Path(sys.base_prefix), "/opt/packages": Path(packages), "/opt/checkout": ROOT}
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.write("/opt/tierstate/pyvenv.cfg", "home = /opt/python/bin\n")
        self.write("/opt/tierstate/bin/tierstate", START, mode=0o755)
        (self.root / "opt/tierstate/bin/python").symlink_to(f"/opt/python/bin/{version}")
        paths = "/opt/checkout/src\nimport site; site.addsitedir('/opt/packages')\n"
        self.write(f"/opt/tierstate/lib/{version}/site-packages/ours.pth", paths)
        for place in self._binds:
            (self.root / place.lstrip("/")).mkdir(parents=True, exist_ok=True)

    def write(self, path: str, text: str, *, mode: int = 0o644) -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)

    def boot(self, *services: str) -> None:
        """Start systemd with these services, and nothing else but its basic target. Returns when systemd is up."""
        self.write(
            f"/etc/systemd/system/{TARGET}",
            f"[Unit]\nRequires=basic.target\nAfter=basic.target\nWants={' '.join(services)}\n",
        )
        binds = [f"--bind={source}:{place}" for place, source in self._binds.items()]
        options = ["--quiet", "--boot", "--register=no", "--keep-unit", "--console=read-only", "--link-journal=no"]
        command = ["systemd-nspawn", *options, f"--directory={self.root}", *binds, "--", f"--unit={TARGET}"]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + BOOT_S
        while not (self._find_first() and self.run("systemctl", "is-active", "basic.target", check=False) == "active"):
            assert self._process.poll() is None, "systemd-nspawn ended"
            assert time.monotonic() < deadline, self.run("systemctl", "list-jobs", check=False)
            time.sleep(0.2)

    def _find_first(self) -> bool:
        """Look for the first process of the machine, a child of nspawn."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        found = [int(each) for each in children if Path(f"/proc/{each}/comm").read_text().strip() == "systemd"]
        self._first = found[0] if found else 0
        return bool(found)

    def run(self, *command: str, check: bool = True, timeout: float = 120) -> str:
        """Run a command in the machine and return its output."""
        inside = ["nsenter", "--all", f"--target={self._first}", "--", *command]
        done = subprocess.run(inside, capture_output=True, text=True, timeout=timeout)
        assert done.returncode == 0 or not check, f"{' '.join(command)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout.strip()

    def shows(self, service: str, name: str) -> str:
        """Return a property of a service."""
        return self.run("systemctl", "show", "--value", f"--property={name}", service)

    def journal(self, service: str) -> str:
        return self.run("journalctl", "--no-pager", "--output=cat", f"--unit={service}")

    def power_off(self) -> None:
        """Stop all services, then the machine. Does nothing if it does not run."""
        if self._process is not None:
            if self._process.poll() is None and self._first:
                self.run("systemctl", "poweroff", check=False)
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = None


@contextmanager
def machine(**binds: Path) -> Iterator[Machine]:
    """Yield a machine that is off; ``binds``: folders by their name below /srv."""
    folder = Path(tempfile.mkdtemp(prefix="tierstate-machine-"))
    root = folder / "root"
    mounted: list[Path] = []
    made: Machine | None = None
    try:
        _mount(folder, "-t", "tmpfs", "tmpfs")
        mounted.append(folder)
        for name in ("upper", "work", "root"):
            (folder / name).mkdir()
        _mount(root, "-t", "overlay", "-o", f"lowerdir=/,upperdir={folder}/upper,workdir={folder}/work", "overlay")
        mounted.append(root)
        made = Machine(root, {f"/srv/{name}": source for name, source in binds.items()})
        yield made
    finally:
        if made is not None:
            made.power_off()
        for place in reversed(mounted):
            subprocess.run(["umount", "--lazy", str(place)], check=False)
        shutil.rmtree(folder, ignore_errors=True)


def _mount(place: Path, *arguments: str) -> None:
    subprocess.run(["mount", *arguments, str(place)], check=True)
