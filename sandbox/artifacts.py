"""Fetch jars, mainly of a Kafka broker, once per machine, and check them against committed SHA-256 sums.

Only Python and Java are needed: Apache Ivy, which is among pyspark's jars, fetches from Maven Central. Behind a proxy,
Java's usual settings apply (``JAVA_TOOL_OPTIONS="-Dhttps.proxyHost=… -Dhttps.proxyPort=…"``).

    <cache>/tierstate/kafka-<release>.lock      held by the process that fetches
    <cache>/tierstate/kafka-<release>/libs/     the jars
    <cache>/tierstate/kafka-<release>/verified  the size of each jar, and the sums that the jars were checked against

One rename creates the complete folder after every sum was checked. Later runs need no network and compare sizes only.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..state.errors import CorruptData, InvalidRequest, MissingExtra, Unavailable

NEWEST = "4.3.0"
RELEASES = (NEWEST, "3.9.1")
"""Each release has a list of committed sums next to this file."""
OLDEST = 17
INSTALL = "sudo apt-get install openjdk-17-jre-headless (Debian, Ubuntu) or brew install openjdk@17 (macOS)"
HERE = Path(__file__).resolve().parent
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Jars:
    """A set of jars in the cache folder ``name``.

    ``ivy`` is Ivy's file, which uses ``release``. ``sums`` is SHA-256 by file name, as `committed_sums` returns it.
    """

    name: str
    title: str
    ivy: Path
    release: str
    sums: dict[str, str]
    megabytes: int


def kafka_libs(progress: Progress | None = None, release: str = NEWEST) -> Path:
    """Return the folder of this release's jars. Fetches the jars if this machine lacks them or they are damaged.

    ``TIERSTATE_KAFKA_LIBS`` names a folder with the user's own jars. They are used unchecked for the newest release,
    and for an older release if they have that release. ``progress`` gets one short line at a time.
    Raises InvalidRequest (no Java, wrong folder, unknown release), MissingExtra (no pyspark), Unavailable
    (cannot fetch) or CorruptData (the fetched jars differ from the committed sums).
    """
    sums = committed_sums(release)
    folder = os.environ.get("TIERSTATE_KAFKA_LIBS")
    if folder:
        libs = Path(folder)
        if not any(libs.glob("kafka_2.13-*.jar")):
            raise InvalidRequest("TIERSTATE_KAFKA_LIBS has no kafka_2.13 jar in it", folder=libs)
        if release == NEWEST or (libs / f"kafka_2.13-{release}.jar").is_file():
            return libs
    return cached(Jars(f"kafka-{release}", f"Kafka {release}", HERE / "ivy.xml", release, sums, 58), progress)


def cached(jars: Jars, progress: Progress | None = None) -> Path:
    """Return the folder of ``jars``. Fetches them if they are missing or damaged. Raises as `kafka_libs`."""
    home = cache_folder() / jars.name
    if not _is_whole(home, jars.sums):
        home.parent.mkdir(parents=True, exist_ok=True)
        with only_one(home.with_name(home.name + ".lock")):
            if not _is_whole(home, jars.sums):  # another process may have fetched them while it held the lock
                _bring(home, jars, progress or (lambda line: None))
    return home / "libs"


def cache_folder() -> Path:
    """Return ``$XDG_CACHE_HOME/tierstate``, by default ``~/.cache/tierstate``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tierstate"


def committed_sums(release: str = NEWEST) -> dict[str, str]:
    """Return SHA-256 by file name for every jar of a release. Raises InvalidRequest if there is no committed list."""
    if release not in RELEASES:
        raise InvalidRequest("the sandbox has no such release of Kafka", release=release, has=" ".join(RELEASES))
    return sums_of(HERE / f"kafka-{release}.sha256")


def sums_of(path: Path) -> dict[str, str]:
    """Return SHA-256 by file name, from a list in the format of ``sha256sum``."""
    return {name: digest for digest, name in (line.split() for line in path.read_text(encoding="ascii").splitlines())}


def check_sums(libs: Path, sums: dict[str, str]) -> None:
    """Raise CorruptData unless the folder holds exactly these files with exactly these sums."""
    names = {path.name for path in libs.iterdir()} if libs.is_dir() else set()
    if names != set(sums):
        odd = sorted(names ^ set(sums))
        raise CorruptData("Kafka's jars are not the ones that were committed", folder=libs, first_odd_file=odd[0])
    for name, expected in sums.items():
        with (libs / name).open("rb") as jar:
            digest = hashlib.file_digest(jar, "sha256").hexdigest()
        if digest != expected:
            raise CorruptData("SHA-256 of a jar does not match", file=name, expected=expected, found=digest)


def write_stamp(home: Path, sums: dict[str, str]) -> None:
    """Record that ``home/libs`` was checked against these sums."""
    sizes = {name: (home / "libs" / name).stat().st_size for name in sums}
    (home / "verified").write_text(json.dumps({"sums": _digest(sums), "sizes": sizes}), encoding="ascii")


def _is_whole(home: Path, sums: dict[str, str]) -> bool:
    try:
        stamp = json.loads((home / "verified").read_text(encoding="ascii"))
        sizes = {path.name: path.stat().st_size for path in (home / "libs").iterdir()}
        return bool(stamp["sums"] == _digest(sums) and stamp["sizes"] == sizes)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _digest(sums: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(sums, sort_keys=True).encode()).hexdigest()


@contextmanager
def only_one(lock: Path) -> Iterator[None]:
    """Wait for the lock file, so that one process of this machine at a time runs the ``with`` block."""
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # the kernel releases the lock whenever the process ends
        yield


def _bring(home: Path, jars: Jars, progress: Progress) -> None:
    for abandoned in home.parent.glob(home.name + ".*.part"):  # left by a killed fetch, as this process holds the lock
        shutil.rmtree(abandoned, ignore_errors=True)
    fresh = Path(tempfile.mkdtemp(prefix=home.name + ".", suffix=".part", dir=home.parent))
    damaged = fresh.with_name("damaged-" + fresh.name)
    try:
        _fetch(fresh, jars, progress)
        shutil.rmtree(fresh / "ivy")
        check_sums(fresh / "libs", jars.sums)
        write_stamp(fresh, jars.sums)
        if home.exists():  # damaged or of an older list; brokers that run from it keep their open files
            home.rename(damaged)
        fresh.rename(home)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(damaged, ignore_errors=True)


def _fetch(folder: Path, jars: Jars, progress: Progress) -> None:
    count = len(jars.sums)
    # Ivy's own sums are a request more for each file, and ours are stronger.
    command = [find_java(), f"-Drelease={jars.release}", "-Divy.checksums=none"]
    command += ["-cp", str(_ivy_jar()), "org.apache.ivy.Main"]
    command += ["-cache", str(folder / "ivy"), "-m2compatible", "-ivy", str(jars.ivy), "-confs", "default"]
    command += ["-types", "jar", "bundle", "test-jar"]
    command += ["-retrieve", str(folder / "libs" / "[artifact]-[revision](-[classifier]).[ext]")]
    progress(f"fetching {jars.title} ({count} jars, {jars.megabytes} MB; once a machine)")
    output: list[str] = []
    modules = fetched = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as ivy:
        assert ivy.stdout is not None
        for line in ivy.stdout:
            output = [*output[-40:], line.rstrip()]
            if line.startswith("\tfound "):
                modules += 1
                progress(f"resolving {jars.title}: {modules} modules")
            elif "[SUCCESSFUL ]" in line:
                fetched += 1
                progress(f"fetching {jars.title}: {fetched} of {count} jars")
    if ivy.returncode != 0 or not (folder / "libs").is_dir():
        why = next((line.strip() for line in output if "rror" in line or "UNRESOLVED" in line), "Ivy stopped")
        raise Unavailable(
            "Kafka's jars could not be fetched (behind a proxy, set it in JAVA_TOOL_OPTIONS; "
            "or point TIERSTATE_KAFKA_LIBS to jars you have)",
            exit_code=ivy.returncode,
            ivy=why,
        )


def _ivy_jar() -> Path:
    spark = importlib.util.find_spec("pyspark")  # not imported, because that takes a second
    jars = sorted((Path(spark.origin).parent / "jars").glob("ivy-*.jar")) if spark and spark.origin else []
    if not jars:
        raise MissingExtra("spark", "fetching Kafka for the sandbox (Apache Ivy is among pyspark's jars)")
    return jars[-1]


def find_java(environment: Mapping[str, str] | None = None) -> str:
    """Return the path of ``java``: ``$JAVA_HOME/bin/java`` if it exists, else the ``java`` on ``$PATH``.

    Raises InvalidRequest, which names the install command, if no Java is found or Java is older than 17.
    """
    environment = os.environ if environment is None else environment
    home = environment.get("JAVA_HOME")
    java = shutil.which(os.path.join(home, "bin", "java")) if home else None
    java = java or shutil.which("java", path=environment.get("PATH", os.defpath))
    if java is None:
        raise InvalidRequest(f"a local Kafka needs Java {OLDEST} or newer, and none was found. Install it: {INSTALL}")
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    match = re.search(r'version "(\d+)', answer.stderr + answer.stdout)
    if match is None or int(match[1]) < OLDEST:
        raise InvalidRequest(
            f"a local Kafka needs Java {OLDEST} or newer. Install it: {INSTALL}",
            java=java,
            version=match[1] if match else "unknown",
        )
    return java
