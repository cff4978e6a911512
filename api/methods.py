"""The methods that a path allows, for the header Allow."""

from __future__ import annotations

PLANS = "/v1/plans"
"""The only path that is posted to; what is below it is deleted."""


def methods_of(path: str) -> str:
    """HEAD and OPTIONS are the door's own (`auth.py`)."""
    if path == PLANS:
        return "POST, OPTIONS"
    return "DELETE, OPTIONS" if path.startswith(f"{PLANS}/") else "GET, HEAD, OPTIONS"
