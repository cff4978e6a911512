"""axe, which judges whether a page is accessible, as its script's text: fetched once a machine, offline afterwards."""

from __future__ import annotations

import os
from pathlib import Path
from zipfile import ZipFile

import pytest

from tierstate.sandbox.artifacts import Jars, cached, sums_of
from tierstate.state.errors import Unavailable

HERE = Path(__file__).parent
RELEASE = "4.11.0"


def axe_script() -> str:
    """Return the script. A machine that cannot fetch it skips the test; with TIERSTATE_CI=1 that is a failure."""
    jars = Jars(f"axe-{RELEASE}", f"axe {RELEASE}", HERE / "axe.xml", RELEASE, sums_of(HERE / "axe.sha256"), 1)
    try:
        file = cached(jars) / f"selenium-{RELEASE}.jar"
    except Unavailable as error:
        if os.environ.get("TIERSTATE_CI") == "1":
            raise
        pytest.skip(str(error))
    with ZipFile(file) as jar:
        return jar.read("axe.min.js").decode()
