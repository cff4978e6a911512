"""Makes the configuration text with which other programs open the tables' catalog, from pyiceberg's properties."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyiceberg.catalog import infer_catalog_type

from .table_catalog import NAME

PYICEBERG = """from pyiceberg.catalog import load_catalog

catalog = load_catalog(
    "{catalog}",
    **{{
{properties}
    }},
)
table = catalog.load_table("{table}")"""
DUCKDB = """import duckdb

files = [task.file.file_path for task in table.scan().plan_files()]
duckdb.read_parquet(files).count("*").show()"""
_NO_CONFIGURATION = (
    "# no lines for {program} and a catalog of the type {kind}: set one of the type rest, glue or hive in [catalog]"
)
_TRINO = {
    "rest": ("rest", {"uri": "iceberg.rest-catalog.uri", "warehouse": "iceberg.rest-catalog.warehouse"}),
    "glue": (
        "glue",
        {"glue.region": "hive.metastore.glue.region", "warehouse": "hive.metastore.glue.default-warehouse-dir"},
    ),
    "hive": ("hive_metastore", {"uri": "hive.metastore.uri"}),
}
"""By catalog type: its name in Trino, and Trino's names of its properties. Spark opens these types, too."""


def engines(properties: Mapping[str, str], table: str) -> dict[str, str]:
    """Return the text for each program. If a program cannot open the catalog, its text is a comment with the reason."""
    inferred = infer_catalog_type(NAME, dict(properties)) if "uri" in properties else None
    kind = properties.get("type") or (inferred.value if inferred else "unknown")
    lines = "\n".join(f"        {json.dumps(name)}: {json.dumps(value)}," for name, value in properties.items())
    return {
        "pyiceberg": PYICEBERG.format(catalog=NAME, properties=lines, table=table),
        "duckdb": DUCKDB,
        "spark": _spark(kind, properties),
        "trino": _trino(kind, properties),
    }


def _spark(kind: str, properties: Mapping[str, str]) -> str:
    others = {name: value for name, value in properties.items() if name != "type"}
    database = properties.get("uri", "").partition("sqlite:///")[2]
    if kind == "sql" and database:
        kind = "jdbc"
        others |= {"uri": f"jdbc:sqlite:{database}", "jdbc.schema-version": "V1"}
    elif kind not in _TRINO:
        return _NO_CONFIGURATION.format(program="Spark", kind=kind)
    if "glue.region" in others:
        others["client.region"] = others.pop("glue.region")
    name = f"spark.sql.catalog.{NAME}"
    lines = [f"{name}=org.apache.iceberg.spark.SparkCatalog", f"{name}.type={kind}"]
    return "\n".join([*lines, *(f"{name}.{key}={value}" for key, value in others.items())])


def _trino(kind: str, properties: Mapping[str, str]) -> str:
    if kind not in _TRINO:
        return _NO_CONFIGURATION.format(program="Trino", kind=kind)
    type_, names = _TRINO[kind]
    lines = ["connector.name=iceberg", f"iceberg.catalog.type={type_}"]
    return "\n".join([*lines, *(f"{names[key]}={value}" for key, value in properties.items() if key in names)])
