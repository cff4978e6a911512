"""Both tiers as a Spark data source."""

from __future__ import annotations

from importlib.util import find_spec

from ..state.errors import MissingExtra

if find_spec("pyspark") is None:
    raise MissingExtra("spark", "the Spark data source")
