"""A session begun as `docs/spark.md` says finds tierstate, whatever ``python3`` is; an error is one sentence."""

from __future__ import annotations

import os
import re
import site
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

pytestmark = pytest.mark.spark
DOCS = Path(__file__).resolve().parents[2] / "docs"
SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
JOB = """
import tierstate.spark
from tierstate.state.errors import InvalidRequest

spark = tierstate.spark.session(master="local[1]", config={"spark.driver.memory": "512m", "spark.ui.enabled": "false"})
try:
    spark.read.format("tierstate").option("subscribe", "orders").load()
except Exception as error:
    print(error)
try:
    tierstate.spark.session(config={"spark.pyspark.python": "/elsewhere/python"})
except InvalidRequest as error:
    print(error)
spark.stop()
"""


@pytest.mark.parametrize(
    "command", [[sys.executable], pytest.param([str(SUBMIT)], marks=pytest.mark.slow)], ids=["python", "submit"]
)
def test_a_session_finds_tierstate_where_python3_has_none(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "python3").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "python3").chmod(0o755)
    environ = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"} | {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    if command[0] != sys.executable:  # Spark would find tierstate by it, whatever `session` does
        environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    done = subprocess.run([*command, "job.py"], env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    lines = [line for line in done.stdout.splitlines() if line.strip() and "SQLSTATE" not in line]
    assert len(lines) == 2, done.stdout + done.stderr
    assert lines[0].endswith("tierstate.state.errors.InvalidRequest: option kafka.bootstrap.servers must be set")
    assert "Traceback" not in lines[0]
    assert "its workers have another Python" in lines[1]
    assert "/elsewhere/python" in lines[1]


def begun_sessions() -> set[str]:
    """Return the ways in which the pages begin a session, each once."""
    snippets = [
        code
        for page in DOCS.glob("*.md")
        for code in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)
    ]
    return {code[: match.end()] for code in snippets if (match := re.search(r"^spark = .*\n", code, re.M))}


@pytest.mark.parametrize("said", [False, True], ids=["", "PYSPARK_PYTHON"])
@pytest.mark.parametrize("begun", sorted(begun_sessions()))
def test_a_session_begun_as_a_page_says_finds_tierstate_in_a_folder_with_a_blank(
    begun: str, said: bool, tmp_path: Path
) -> None:
    folder = tmp_path / "my checkout"
    python = folder / ".venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / ".venv")], check=True, timeout=100)
    [packages] = folder.glob(".venv/lib/*/site-packages")
    (packages / "ours.pth").write_text(f"import site; site.addsitedir({site.getsitepackages()[0]!r})\n")
    (folder / "job.py").write_text(begun + 'spark.read.format("tierstate").option("subscribe", "orders").load()\n')
    environ = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    environ |= {"SPARK_LOCAL_IP": "127.0.0.1"} | ({"PYSPARK_PYTHON": str(python)} if said else {})
    done = subprocess.run([python, "job.py"], env=environ, cwd=folder, capture_output=True, text=True, timeout=300)
    assert "InvalidRequest: option kafka.bootstrap.servers must be set" in done.stderr
