"""Values that are read again from files and commands while a process runs."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from tierstate.runtime import live_secret
from tierstate.runtime.live_secret import LiveSecret, Reference
from tierstate.runtime.settings_load import load_settings
from tierstate.state.errors import InvalidSettings


@pytest.fixture
def password(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text("first\n")
    return path


@pytest.fixture
def config(tmp_path: Path, password: Path) -> Path:
    path = tmp_path / "tierstate.toml"
    path.write_text(
        '[kafka]\n"sasl.password" = { file = "password" }\n"sasl.username" = { command = ["cat", "password"] }\n'
        '[store]\nurl = "s3://bucket"\n'
    )
    return path


def test_a_file_is_read_again_when_it_changed_and_a_command_when_it_was_refused(
    config: Path, password: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_secret, "AGAIN_S", -1.0)
    settings = load_settings(config, (), {})
    assert settings.kafka == {"sasl.password": "first", "sasl.username": "first"}
    by_file, by_command = settings.live["kafka.sasl.password"], settings.live["kafka.sasl.username"]
    password.write_text("second\n")
    assert (by_file.now(), by_command.now()) == ("second", "first")
    by_command.renew()
    assert by_command.now() == "second"
    assert settings.is_masked("kafka.sasl.username")


def test_a_file_that_is_away_or_empty_leaves_the_value_as_it_was(password: Path) -> None:
    secret = LiveSecret(Reference("file", (str(password),)), "first")
    password.write_text("")
    assert secret.now() == "first"
    password.unlink()
    assert secret.now() == "first"
    password.write_text("second")
    assert secret.now() == "second"


def test_a_secret_that_was_sent_to_another_process_is_read_again_there(password: Path) -> None:
    secret: LiveSecret = pickle.loads(pickle.dumps(LiveSecret(Reference("file", (str(password),)), "first")))
    password.write_text("second")
    assert secret.now() == "second"


@pytest.mark.parametrize("words", ['["false"]', '["true"]', '["no-such-program"]'])
def test_a_command_that_gives_no_value_is_an_error_that_names_it(tmp_path: Path, words: str) -> None:
    path = tmp_path / "tierstate.toml"
    path.write_text(f'[kafka]\n"sasl.password" = {{ command = {words} }}\n')
    with pytest.raises(InvalidSettings, match=rf"kafka\.sasl\.password: the command {words[2:-2]} "):
        load_settings(path, (), {})
