"""A command that waits for the store notes it on stderr, once in a while."""

from __future__ import annotations

import pytest

from tierstate.cli import context
from tierstate.cli.context import Context
from tierstate.runtime.listener import RequestRepeated, StoreThrottled

REPEATED = RequestRepeated("s3://b", "key", 0.1, "the store does not answer. store=s3://b")


def test_a_store_that_does_not_answer_is_noted_once_in_five_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    command = Context()
    for _ in range(3):
        command.note_event(REPEATED)
    assert capsys.readouterr().err == "trying again: the store does not answer. store=s3://b\n"


def test_each_further_wait_is_noted(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "STORE_NOTE_S", 0.0)
    command = Context()
    command.note_event(REPEATED)
    command.note_event(StoreThrottled("s3://b", "key", 0.1))
    notes = capsys.readouterr().err.splitlines()
    assert notes == [f"trying again: {REPEATED.error}", "trying again: the store asks to slow down"]


def test_a_quiet_command_notes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Context(quiet=True).note_event(REPEATED)
    assert capsys.readouterr().err == ""
