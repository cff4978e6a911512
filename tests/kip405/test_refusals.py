"""Commands that need agents' facts are refused before anything is connected: Kafka tiers these topics itself."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

import pytest

import tierstate
from tierstate.cli.main import run
from tierstate.state.errors import InvalidRequest

TOPIC = "orders"
COMMANDS = (
    ("accept-gap", f"{TOPIC}:0", "--from", "1", "--to", "2", "--reason", "x"),
    ("agent",),
    ("check",),
    ("delete-records", f"{TOPIC}:0", "--before", "10"),
    ("diff", "one", "other"),
    ("disable", TOPIC, "--remote", "keep"),
    ("facts", TOPIC),
    ("init",),
    ("leases",),
    ("pause", TOPIC),
    ("recover",),
    ("recover", "--begin-history"),
    ("release", f"{TOPIC}:0"),
    ("replay", "--out", "nowhere"),
    ("resume", TOPIC),
    ("settle", f"{TOPIC}:0"),
    ("sweep",),
    ("undelete", "A" * 22),
)


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """Return settings of a cluster at a port to which no test may connect."""
    file = tmp_path / "tierstate.toml"
    file.write_text(
        f'state_dir = "{tmp_path}"\n[kafka]\n"bootstrap.servers" = "127.0.0.1:1"\n[agent]\nlog_dirs = ["{tmp_path}"]\n'
        f'[store]\nurl = "{tmp_path.as_uri()}"\n[view]\nsource = "kip405"\n'
    )
    return file


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_that_needs_agents_facts_is_refused_by_name_and_connects_to_nothing(
    command: tuple[str, ...], settings: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def connected(*arguments: object, **options: object) -> None:
        raise AssertionError("it connected")

    monkeypatch.setattr(socket, "create_connection", connected)
    assert run([*command, "--config", str(settings)]) != 0
    error = capsys.readouterr().err
    assert "view.source=kip405" in error
    assert "tierstate recover" not in error


def test_a_past_view_is_of_the_bucket_only(settings: Path) -> None:
    store = settings.parent.as_uri()
    with (
        closing(
            tierstate.connect(bootstrap="127.0.0.1:1", store=store, source="kip405", settings={"view.as_of": "@-1h"})
        ) as log,
        pytest.raises(InvalidRequest, match="as_of"),
    ):
        log.topic(TOPIC).partitions()
