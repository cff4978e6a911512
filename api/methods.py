"""The methods that a path allows, for the header Allow."""

from __future__ import annotations

PLANS = "/v1/plans"
"""The only path that allows POST. The paths below it allow DELETE."""


def methods_of(path: str) -> str:
    """Return the methods for the header. `auth.py` itself implements HEAD and OPTIONS."""
    if path == PLANS:
        return "POST, OPTIONS"
    return "DELETE, OPTIONS" if path.startswith(f"{PLANS}/") else "GET, HEAD, OPTIONS"
