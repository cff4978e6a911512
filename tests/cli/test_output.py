from __future__ import annotations

import io
import json

import pytest

from tierstate.cli.output import Output


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


def test_progress_is_shown_only_to_somebody_who_watches() -> None:
    for stderr, quiet, shown in ((Terminal(), False, True), (Terminal(), True, False), (io.StringIO(), False, False)):
        out = io.StringIO()
        with Output(quiet=quiet, stdout=out, stderr=stderr).progress("verifying", 3) as advance:
            advance(1)
        assert bool(stderr.getvalue()) is shown
        assert out.getvalue() == ""
