"""A settings file of a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.loaded import WriteToml


@pytest.fixture
def write_toml(tmp_path: Path) -> WriteToml:
    def write(text: str) -> Path:
        path = tmp_path / "tierstate.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write
