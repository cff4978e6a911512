"""Settings that a test loads from a file and from variables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tierstate.runtime.settings import Settings
from tierstate.runtime.settings_load import load_settings
from tierstate.state.errors import InvalidSettings

WriteToml = Callable[[str], Path]


def given(config: Path | None = None, *overrides: str, **environ: str) -> Settings:
    return load_settings(config, overrides, environ, searched=())


def problems(config: Path | None = None, *overrides: str, **environ: str) -> list[str]:
    with pytest.raises(InvalidSettings) as caught:
        given(config, *overrides, **environ)
    return caught.value.problems
