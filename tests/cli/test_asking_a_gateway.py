"""`--gateway` is ignored by no command: each asks it, or refuses."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from tests.cli.test_shown_or_done import commands
from tierstate.cli.flags import COMMANDS
from tierstate.cli.main import run

NOBODY = "http://127.0.0.1:1"


def needed(command: click.Command) -> list[str]:
    """Return words for everything that the command requires."""
    words: list[str] = []
    for parameter in command.params:
        word = parameter.type.choices[0] if isinstance(parameter.type, click.Choice) else "1"
        if parameter.required:
            words += [word] if isinstance(parameter, click.Argument) else [parameter.opts[0], word]
    return words


@pytest.mark.parametrize(("name", "command"), [pytest.param(*pair, id=pair[0]) for pair in commands()])
def test_each_command_asks_the_gateway_or_refuses_it(
    name: str,
    command: click.Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    code = run(["--gateway", NOBODY, *name.split(), *needed(command)])
    stderr = capsys.readouterr().err
    if "one partition is needed" in stderr:
        code = run(["--gateway", NOBODY, *name.split(), "t:0", *needed(command)[1:]])
        stderr = capsys.readouterr().err
    if name in COMMANDS:
        assert f"the gateway does not answer. url={NOBODY}" in stderr
    else:
        assert (code, f"tierstate {name} asks no gateway" in stderr) == (2, True), stderr


@pytest.mark.parametrize("asked", ["--via broker", "--via reader", "--via consumer", "--per-segment"])
def test_a_digest_by_another_reader_refuses_a_gateway(asked: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--gateway", NOBODY, "digest", "t", *asked.split()]) == 2
    assert f"{asked} asks no gateway" in capsys.readouterr().err


def test_a_lease_is_not_ended_through_a_gateway(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--gateway", NOBODY, "leases", "t", "--end", "KzQeK0bVSB6RjzJm1yCqDw"]) == 2
    assert "it asks no gateway" in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_cannot_ask_a_gateway_and_the_bucket(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    topic = [] if name in ("status", "topics") else ["t:0"]
    into = ["--into", "file:///nowhere"] if name == "export" else []
    assert run(["--set", "view.source=bucket", "--gateway", NOBODY, name, *topic, *into]) == 2
    assert "--gateway or --source bucket, not both" in capsys.readouterr().err
