"""A process that may open too few files reports it when it starts."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiers import few


@pytest.mark.parametrize("command", few(["agent", "gateway", "proxy"], ["agent"]))
def test_a_service_that_may_open_too_few_files_ends_with_a_sentence(tmp_path: Path, command: str) -> None:
    settings = tmp_path / "tierstate.toml"
    settings.write_text(
        f'state_dir = "{tmp_path}/state"\n[kafka]\n"bootstrap.servers" = "127.0.0.1:1"\n'
        f'[store]\nurl = "{tmp_path.as_uri()}/store"\n[agent]\nlog_dirs = ["{tmp_path}"]\n'
    )
    done = subprocess.run(
        [sys.executable, "-m", "tierstate.cli.main", command, "--config", str(settings)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128)),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert "ulimit -n" in done.stderr
