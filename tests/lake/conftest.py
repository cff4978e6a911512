"""Golden partition folders in two tiers, to be exported."""

from __future__ import annotations

from tests.fetch.conftest import golden_log as golden_log
