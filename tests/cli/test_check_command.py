"""``tierstate check``, run by a person who does not know yet which service is away."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path


def test_rows_are_printed_as_they_end_and_a_store_that_never_answers_keeps_no_process(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as store:
        settings = tmp_path / "tierstate.toml"
        settings.write_text(
            f'state_dir = "{tmp_path}"\n[kafka]\n"bootstrap.servers" = "127.0.0.1:1"\n'
            f'[store]\nurl = "s3://bucket/tier"\nendpoint = "http://127.0.0.1:{store.getsockname()[1]}"\n'
            f'region = "us-east-1"\n[agent]\nlog_dirs = ["{tmp_path}"]\n[tiering]\ninclude = ["orders"]\n'
        )
        command = [sys.executable, "-m", "tierstate.cli.main", "check", "--config", str(settings)]
        environment = os.environ | {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        ) as run:
            assert run.stdout is not None
            assert run.stdout.readline().split() == ["check", "state", "detail"]
            lines = [run.stdout.readline() for _ in range(4)]
            assert lines[3].split()[:3] == ["state", "folder", "ok"]
            assert run.poll() is None, "the store is still waited for"
            stdout, trouble = run.communicate()
    assert run.returncode == 1, trouble
    assert "object store      wrong    the object store does not answer: it should have within 10 s" in stdout
    assert "proxy" in stdout.splitlines()[-1]
    assert "object store" in trouble.splitlines()[-1]
