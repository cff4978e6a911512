from __future__ import annotations

import io
import json
import logging
import time
from pathlib import Path

import pytest

from tierstate.cli import output
from tierstate.cli.context import Context
from tierstate.cli.main import run
from tierstate.cli.output import Output
from tierstate.cli.serving import service_logs
from tierstate.runtime.visible import HIDDEN


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_table_in_a_pipe_keeps_every_cell_whole() -> None:
    out = io.StringIO()
    Output(stdout=out).table(("topic", "reason"), [("a", "x" * 300), ("long-name", None)])
    assert out.getvalue().splitlines() == ["topic      reason", "a          " + "x" * 300, "long-name  -"]


def test_a_table_on_a_terminal_does_not_read_names_as_markup() -> None:
    out = Terminal()
    Output(stdout=out, colour=False).table(("topic",), [("[red]orders",)])
    assert "[red]orders" in out.getvalue()


def test_with_json_a_table_is_one_document() -> None:
    out = io.StringIO()
    Output(as_json=True, stdout=out).table(("a", "b"), [(1, None), (2, "é")])
    assert json.loads(out.getvalue()) == [{"a": 1, "b": None}, {"a": 2, "b": "é"}]


@pytest.mark.parametrize("command", ["gateway", "proxy"])
def test_behind_a_log_of_json_notes_and_errors_are_json_too(
    command: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("TIERSTATE_LOG", "json")
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    context = Context()
    try:
        service_logs(context)
        context.output.note("listening on http://127.0.0.1:1")
        where = ["--bootstrap-server", "127.0.0.1:1", "--store", tmp_path.as_uri()]
        assert run([command, *where, "--set", f"state_dir={tmp_path}"]) == 3
        assert run([command, "--set", "no.such=1"]) == 2
    finally:
        root.handlers, root.level = handlers, level
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert lines[0]["event"] == "listening on http://127.0.0.1:1"
    assert [line["exit_code"] for line in lines if "exit_code" in line] == [3, 2]


def test_an_empty_table_is_its_headings_or_an_empty_list() -> None:
    text, document = io.StringIO(), io.StringIO()
    Output(stdout=text).table(("a", "b"), [])
    Output(as_json=True, stdout=document).table(("a", "b"), [])
    assert (text.getvalue(), json.loads(document.getvalue())) == ("a  b\n", [])


def test_stream_items_are_one_object_a_line() -> None:
    out = io.StringIO()
    output = Output(as_json=True, stdout=out)
    output.item({"offset": 1, "value": "a\nb"})
    output.item({"offset": 2})
    assert [json.loads(line)["offset"] for line in out.getvalue().splitlines()] == [1, 2]


@pytest.mark.parametrize("quiet", [True, False])
def test_notes_go_to_stderr_unless_quiet(quiet: bool) -> None:
    out, err = io.StringIO(), io.StringIO()
    Output(quiet=quiet, stdout=out, stderr=err).note("copying")
    assert (out.getvalue(), err.getvalue()) == ("", "" if quiet else "copying\n")


def test_progress_is_shown_only_on_a_terminal() -> None:
    for stderr, quiet, shown in ((Terminal(), False, True), (Terminal(), True, False), (io.StringIO(), False, False)):
        out = io.StringIO()
        with Output(quiet=quiet, stdout=out, stderr=stderr).progress("verifying", 3) as advance:
            advance(1)
        assert bool(stderr.getvalue()) is shown
        assert out.getvalue() == ""


@pytest.mark.parametrize(("total", "text"), [(None, "waiting for a lock …"), (3, "waiting for a lock: 0 of 3")])
def test_long_work_is_noted_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, total: int | None, text: str
) -> None:
    monkeypatch.setattr(output, "FIRST_NOTE_S", 0.0)
    stderr = io.StringIO()
    with Output(stderr=stderr).progress("waiting for a lock", total):
        while not stderr.getvalue():
            time.sleep(0.001)
    assert stderr.getvalue() == f"{text}\n"


HOSTILE = "gro\u202epuorg\x1b[2J\x9b1m\u2066x\u2069\u200f"
SHOWN = r"gro\u202epuorg\u001b[2J\u009b1m\u2066x\u2069\u200f"


@pytest.mark.parametrize("out", [io.StringIO, Terminal])
def test_a_name_that_a_stranger_chose_moves_and_hides_nothing(out: type[io.StringIO]) -> None:
    stdout, noted = out(), out()
    output = Output(stdout=stdout, stderr=noted, colour=False)
    output.table(("group", "behind"), [(f"{HOSTILE}\nother  0", 5)])
    output.line(f"held by {HOSTILE}")
    output.note(f"held by {HOSTILE}")
    text = stdout.getvalue()
    assert SHOWN in text.replace("\n", "")
    assert "\nother" not in text, "a name makes no row"
    assert noted.getvalue() == f"held by {SHOWN}\n"
    assert set(text + noted.getvalue()) & HIDDEN <= {"\n", "\x1b"}, "of the table's own on a terminal"
    assert "\x1b[2J" not in text


def test_json_of_such_a_name_is_the_name_and_moves_nothing_either() -> None:
    out, noted = io.StringIO(), io.StringIO()
    output = Output(as_json=True, stdout=out, stderr=noted)
    output.item({"group": HOSTILE})
    output.note(json.dumps({"group": HOSTILE}, ensure_ascii=False))
    item, document = out.getvalue(), io.StringIO()
    Output(stdout=document).document({"group": HOSTILE})
    for text in (item, noted.getvalue(), document.getvalue()):
        assert json.loads(text) == {"group": HOSTILE}
        assert not set(HOSTILE) & HIDDEN & set(text)
