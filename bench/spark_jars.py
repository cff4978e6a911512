"""The jars of Spark's own Kafka source: once a machine, checked against the sums here, offline afterwards."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from tierstate.sandbox.artifacts import _ivy_jar, cache_folder, check_sums
from tierstate.sandbox.java import find_java

SUMS = {
    "commons-pool2-2.13.1.jar": "f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f",
    "kafka-clients-3.9.2.jar": "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8",
    "spark-sql-kafka-0-10_2.13-4.2.0.jar": "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705",
    "spark-token-provider-kafka-0-10_2.13-4.0.0.jar": (
        "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767"
    ),
}
ASKED = Path(__file__).with_name("spark_jars.xml")


def kafka_source_jars() -> list[Path]:
    """Their files, for ``spark.jars``. Raises CorruptData, and what Ivy says when it cannot fetch them."""
    home = cache_folder() / "spark-kafka-4.2.0"
    if not home.is_dir():
        home.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=home.name, dir=home.parent))
        try:
            command = [find_java(), "-cp", str(_ivy_jar()), "org.apache.ivy.Main", "-m2compatible"]
            command += ["-cache", str(fresh / "ivy"), "-ivy", str(ASKED), "-confs", "default"]
            command += ["-types", "jar", "bundle", "-retrieve", str(fresh / "jars" / "[artifact]-[revision].[ext]")]
            said = subprocess.run(command, capture_output=True, text=True, check=False)
            if said.returncode:
                raise SystemExit(said.stdout[-2000:])
            check_sums(fresh / "jars", SUMS)
            (fresh / "jars").rename(home)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    check_sums(home, SUMS)
    return [home / name for name in SUMS]
