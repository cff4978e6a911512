"""Secrets come into settings by reference, and no error or page repeats them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.loaded import WriteToml, given, problems
from tierstate.runtime.effective_settings import effective
from tierstate.runtime.settings_load import load_settings
from tierstate.state.errors import InvalidSettings


def test_secrets_come_by_reference_and_are_shown_nowhere(write_toml: WriteToml, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hunter2-file\n")
    file = write_toml(
        '[store]\naccess_key_id = { env = "KEY" }\nsecret_access_key = { file = "secret" }\n'
        '[kafka]\n"sasl.password" = { env = "SASL" }\n'
    )
    settings = given(
        file,
        KEY="hunter2-id",
        SASL="hunter2-sasl",
        TIERSTATE_KAFKA__SSL_KEY_PASSWORD="hunter2-ssl",
    )
    assert settings.store.secret_access_key is not None
    assert settings.store.secret_access_key.get_secret_value() == "hunter2-file"
    assert settings.kafka == {"sasl.password": "hunter2-sasl", "ssl.key.password": "hunter2-ssl"}
    shown = {row.key: row.value for row in effective(settings)}
    assert (
        shown["store.secret_access_key"] == shown["kafka.sasl.password"] == shown["store.access_key_id"] == "(hidden)"
    )
    assert "hunter2" not in str(shown)
    assert "hunter2-sasl" not in repr(settings)
    assert "hunter2-env" not in repr(settings)


@pytest.mark.parametrize("key", ["store.secret_access_key", "kafka.sasl.password"])
def test_a_secret_in_a_file_or_on_a_command_line_is_refused_without_repeating_it(
    key: str, write_toml: WriteToml
) -> None:
    section, _, name = key.partition(".")
    for sentence in (problems(None, f"{key}=hunter2"), problems(write_toml(f'[{section}]\n"{name}" = "hunter2"\n'))):
        assert "by reference only" in sentence[0]
        assert "hunter2" not in str(sentence)


def test_a_wrong_value_behind_a_reference_is_not_repeated(write_toml: WriteToml) -> None:
    sentence = problems(write_toml('[trim]\ndelay = { env = "X" }\n[copy]\nconcurrency = { env = "X" }\n'), X="hunter2")
    assert len(sentence) == 2
    assert "hunter2" not in str(sentence)


def test_a_reference_to_nothing_is_reported_with_the_other_errors(write_toml: WriteToml) -> None:
    messages = problems(
        write_toml('[store]\naccess_key_id = { env = "NONE" }\nsecret_access_key = { file = "none" }\nurl = "x"\n')
    )
    assert len(messages) == 3
    assert "NONE is not set" in str(messages)


@pytest.mark.parametrize(
    "written",
    [
        'token = "geheim"',
        '"s3.secret-access-key" = "geheim"',
        'credential = "a:geheim"',
        'uri = "postgresql://a:geheim@b/c"',
    ],
)
def test_a_catalogs_secrets_are_given_by_reference(write_toml: WriteToml, written: str) -> None:
    with pytest.raises(InvalidSettings, match="by reference") as refused:
        load_settings(write_toml(f"[catalog]\n{written}\n"), (), {})
    assert "geheim" not in str(refused.value)
