"""The behaviour of a test on a machine that cannot build the store that it asks for."""

from __future__ import annotations

import os

import pytest

from .store_programs import INSTALL, StoreProgram, has_installer


def needs(program: StoreProgram) -> None:
    """Skip the test with the reason; with TIERSTATE_CI=1 it fails."""
    if not has_installer(program):
        reason = f"{program.name} needs {INSTALL[program.installer]}"
        if os.environ.get("TIERSTATE_CI") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
