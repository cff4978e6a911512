"""The images of the tests: ours, and stand-ins for published ones where no registry of images can be reached.

A stand-in has what the published image has for ours: the same names, paths, users and environment. It does not prove
anything about the published image. Images and wheels that are slow to make are kept in the user's cache folder:

    <cache>/tierstate/containers/bases-<recipe>.tar    Debian with Python, and the same with Java
    <cache>/tierstate/containers/wheels/               what requirements/*.lock name
"""

from __future__ import annotations

import functools
import hashlib
import http.server
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.containers.engine import Engine
from tests.servers.store_programs import VERSITYGW, store_program
from tests.wheels import ROOT
from tierstate.sandbox.artifacts import cache_folder, kafka_libs, only_one

PYTHON, KAFKA, STORE = "python:3.11-slim", "apache/kafka:4.3.0", "versity/versitygw:v1.8.0"
SPARK = "apache/spark:4.3.0-python3"
SPARK_OURS = "spark-tierstate:test"
BASE, JAVA = "tierstate-stand-in/python", "tierstate-stand-in/java"
PACKAGES = "python3,python3-venv,ca-certificates,binutils,tini"
PATH = "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
JAVA_RECIPE = f"""FROM {BASE}
COPY ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
RUN mkdir -p /usr/share/man/man1 && apt-get update -qq \\
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless \\
 && find /usr/lib/jvm -xtype l -delete && mkdir /opt/java \\
 && cp -rL /usr/lib/jvm/java-17-openjdk-* /opt/java/openjdk && rm -rf /usr/lib/jvm \\
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /usr/share/doc
ENV JAVA_HOME=/opt/java/openjdk PATH=/opt/java/openjdk/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
"""
KAFKA_RECIPE = f"""FROM {JAVA}
RUN useradd --uid 1000 appuser && install -d -o appuser /var/lib/kafka/data /opt/kafka/config
COPY libs /opt/kafka/libs
COPY bin /opt/kafka/bin
USER appuser
VOLUME /var/lib/kafka/data
CMD ["/opt/kafka/bin/run.sh"]
"""
KAFKA_RUN = r"""#!/bin/bash -eu
env | sed -nE 's/^KAFKA_([A-Z_]+)=(.*)/\1 \2/p' | while read -r name value; do
  name=${name,,}; echo "${name//_/.}=$value"
done > /opt/kafka/config/server.properties
export CLASSPATH='/opt/kafka/libs/*'
cd /opt/kafka/config
java kafka.tools.StorageTool format --ignore-formatted --cluster-id AAAAAAAAAAAAAAAAAAAAAA -c server.properties
exec java -Xmx512m kafka.Kafka server.properties
"""
KAFKA_VERSIONS = """#!/bin/bash
exec java -cp '/opt/kafka/libs/*' org.apache.kafka.tools.BrokerApiVersionsCommand "$@"
"""
SPARK_RECIPE = f"""FROM {JAVA}
COPY spark /opt/spark
COPY entrypoint.sh decom.sh /opt/
ENV SPARK_HOME=/opt/spark
ENTRYPOINT ["/opt/entrypoint.sh"]
"""


def tools(engine: Engine) -> None:
    """Make the stand-ins for Python, Kafka and the store, under the names of the published images."""
    bases(engine)
    with scratch(engine) as context:
        shutil.copytree(kafka_libs(), context / "libs")
        (context / "bin").mkdir()
        (context / "bin" / "run.sh").write_text(KAFKA_RUN)
        (context / "bin" / "kafka-broker-api-versions.sh").write_text(KAFKA_VERSIONS)
        for script in (context / "bin").iterdir():
            script.chmod(0o755)
        (context / "Dockerfile").write_text(KAFKA_RECIPE)
        engine.build(context, KAFKA)
    with scratch(engine) as context:
        shutil.copy(store_program(VERSITYGW), context / "versitygw")
        (context / "Dockerfile").write_text(
            f'FROM {BASE}\nCOPY versitygw /\nENTRYPOINT ["/versitygw"]\nVOLUME /objects\n'
        )
        engine.build(context, STORE)


def spark(engine: Engine) -> None:
    """Make the stand-in for Spark's image from the files that the package pyspark ships."""
    package = importlib.util.find_spec("pyspark")
    assert package is not None
    assert package.origin is not None
    home = Path(package.origin).parent
    with scratch(engine) as context:
        for name in ("bin", "jars", "python"):
            shutil.copytree(home / name, context / "spark" / name)
        for name in ("entrypoint.sh", "decom.sh"):
            (context / name).write_text('#!/bin/bash\nexec "$@"\n')
            (context / name).chmod(0o755)
        (context / "Dockerfile").write_text(SPARK_RECIPE)
        engine.build(context, SPARK)


def bases(engine: Engine) -> None:
    """Load the two images that the others are made from; make them if this machine has none."""
    recipe = hashlib.sha256((PACKAGES + PATH + JAVA_RECIPE).encode()).hexdigest()[:12]
    file = home() / f"bases-{recipe}.tar"
    with only_one(home() / "bases.lock"):
        if file.exists():
            engine.docker("load", "--input", str(file))
            return
        with scratch(engine) as folder:
            debian(folder / "root")
            tar = f"tar -C {folder}/root -c . | docker import -c '{PATH}' - {BASE}"
            engine.run("bash", "-c", tar)
            certificates = "/etc/ssl/certs/ca-certificates.crt"
            (folder / "java").mkdir()
            shutil.copy(certificates, folder / "java")
            (folder / "java" / "Dockerfile").write_text(JAVA_RECIPE)
            engine.build(folder / "java", JAVA)
            fresh = file.with_suffix(".part")
            engine.docker("save", "--output", str(fresh), BASE, JAVA)
            fresh.rename(file)


def debian(root: Path) -> None:
    """Make a small Debian with Python as ``python``, without the documents that slim images lack as well."""
    command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(root)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]
    (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    for name in ("usr/share/doc", "usr/share/man", "usr/share/locale", "var/lib/apt/lists", "var/cache/apt"):
        shutil.rmtree(root / name)
    (root / "var/lib/apt/lists/partial").mkdir(parents=True)
    (root / "var/cache/apt/archives/partial").mkdir(parents=True)


def published(engine: Engine) -> bool:
    """Return whether the engine has all published images, or can pull them."""
    try:
        for image in (PYTHON, KAFKA, STORE, SPARK):
            engine.run("bash", "-c", f"docker image inspect {image} || docker pull --quiet {image}")
    except AssertionError:
        return False
    return True


@contextmanager
def sources(engine: Engine) -> Iterator[None]:
    """Prepare what our images are built from.

    With an engine of our own: serve the wheels on loopback, and make the stand-in for Python's image, whose pip finds
    them there, and the one for Spark's.
    """
    if engine.folder is None:
        yield
        return
    spark(engine)
    folder = wheels()
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        place = f"http://127.0.0.1:{server.server_address[1]}/"
        with scratch(engine) as context:
            (context / "Dockerfile").write_text(f"FROM {BASE}\nENV PIP_NO_INDEX=1 PIP_FIND_LINKS={place}\n")
            engine.build(context, PYTHON)
        try:
            yield
        finally:
            server.shutdown()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Write no line for a request."""


def wheels() -> Path:
    """Return the folder with all wheels that a build of our images installs; download the missing ones."""
    folder = home() / "wheels"
    folder.mkdir(exist_ok=True)
    names = "packaging|setuptools|wheel|pandas|python-dateutil|pytz|tzdata|six"
    locks = [(ROOT / "requirements" / f"{name}.lock").read_text() for name in ("agent", "gateway", "sbom")]
    locks.append(pins((ROOT / "requirements" / "dev.lock").read_text(), names.split("|")))
    with only_one(home() / "wheels.lock"):
        for lock in locks:
            stamp = folder / f"{hashlib.sha256(lock.encode()).hexdigest()[:12]}.whole"
            if not stamp.exists():
                with tempfile.NamedTemporaryFile("w", suffix=".lock") as file:
                    file.write(lock)
                    file.flush()
                    command = [
                        sys.executable,
                        "-m",
                        "pip",
                        "download",
                        "--quiet",
                        "--only-binary",
                        ":all:",
                        "--no-deps",
                    ]
                    command += ["--require-hashes", "--requirement", file.name, "--dest", str(folder)]
                    done = subprocess.run(command, capture_output=True, text=True)
                assert done.returncode == 0, done.stderr
                stamp.touch()
    return folder


def pins(lock: str, names: list[str]) -> str:
    """Return the blocks of a lock that pin these packages, with their hashes."""
    kept, lines = False, []
    for line in lock.splitlines():
        if line[:1].isalpha():
            kept = line.split("==")[0] in names
        if kept and not line.lstrip().startswith("#"):
            lines.append(line)
    return "\n".join(lines) + "\n"


def home() -> Path:
    """Return the folder in the user's cache folder."""
    folder = cache_folder() / "containers"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def scratch(engine: Engine) -> Iterator[Path]:
    """Make a folder for a short time; with an engine of our own it is removed with the engine at the latest."""
    folder = Path(tempfile.mkdtemp(prefix="tierstate-image-", dir=engine.folder))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
