"""Iceberg's REST catalog for tests, a Java process over a SQLite file: fetched once a machine, offline afterwards."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.servers.store_programs import StoreProgram
from tests.servers.store_server import StoreServer
from tierstate.sandbox.artifacts import Jars, cached, find_java, sums_of
from tierstate.state.errors import Unavailable

HERE = Path(__file__).parent
RELEASE = "1.10.0"


class RestCatalog(StoreServer):
    """A catalog server whose tables outlive it: after `kill`, `start` brings them back."""

    def __init__(self, folder: Path, warehouse: str, environment: Mapping[str, str]) -> None:
        """``environment`` adds ``CATALOG_…`` variables, as the server reads them (``__`` is ``-``)."""
        self._jar = _jar()
        settings = {"CATALOG_WAREHOUSE": warehouse, "CATALOG_URI": f"jdbc:sqlite:{folder}/rest.db", **environment}
        program = StoreProgram("iceberg-rest", "java", "", RELEASE, "java")
        super().__init__(program, lambda port, at: ["-Xmx512m", "-jar", str(self._jar)], folder, settings)

    def _brought(self) -> str:
        return find_java()

    def start(self) -> None:
        self.environment["CATALOG_REST_PORT"] = str(self._port)
        super().start()


def sqlite_driver(folder: Path) -> Path:
    """Return the JDBC driver of SQLite that the server carries, as a jar of its own."""
    jar = folder / "sqlite-jdbc.jar"
    with zipfile.ZipFile(_jar()) as whole, zipfile.ZipFile(jar, "w") as driver:
        for name in whole.namelist():
            if name.startswith(("org/sqlite/", "META-INF/services/java.sql.Driver")):
                driver.writestr(name, whole.read(name))
    return jar


def _jar() -> Path:
    sums = sums_of(HERE / "rest_catalog.sha256")
    jars = Jars(f"iceberg-rest-{RELEASE}", "a REST catalog", HERE / "rest_catalog.xml", RELEASE, sums, 212)
    return cached(jars) / f"iceberg-open-api-{RELEASE}.jar"


def rest_catalog(folder: Path, warehouse: str, environment: Mapping[str, str] | None = None) -> RestCatalog:
    """Return the server. A machine that cannot fetch it skips the test; with TIERSTATE_CI=1 that is a failure."""
    try:
        return RestCatalog(folder, warehouse, environment or {})
    except Unavailable as error:
        if os.environ.get("TIERSTATE_CI") == "1":
            raise
        pytest.skip(str(error))
