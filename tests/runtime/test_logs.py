from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from tierstate.cli.serving import secrets_of
from tierstate.runtime import listener
from tierstate.runtime.listener import Event, FactsApplied, RemoteFetched, SegmentDeleted, ViewRebuilt
from tierstate.runtime.logs import log_events, open_logs, take_library_logs
from tierstate.runtime.settings_load import load_settings
from tierstate.runtime.visible import HIDDEN
from tierstate.state.errors import InvalidSettings
from tierstate.state.ids import RemoteSegmentId, TopicId, TopicIdPartition
from tierstate.state.offsets import Offset, OffsetRange

EVENTS = [kind for kind in vars(listener).values() if isinstance(kind, type) and issubclass(kind, Event)]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_for_people_have_colours_on_a_terminal_only() -> None:
    terminal, pipe, plain = Terminal(), io.StringIO(), Terminal()
    open_logs({}, stream=terminal).info("segment copied", offset=7)
    open_logs({}, stream=pipe).info("segment copied", offset=7)
    open_logs({}, colour=False, stream=plain).info("segment copied", offset=7)
    open_logs({"NO_COLOR": "1"}, stream=plain).info("segment copied", offset=7)
    assert "\x1b[" in terminal.getvalue()
    assert "\x1b[" not in pipe.getvalue() + plain.getvalue()
    assert "segment copied" in pipe.getvalue()
    assert "offset=7" in pipe.getvalue()


def test_a_name_in_a_line_for_people_moves_and_hides_nothing() -> None:
    out = io.StringIO()
    open_logs({}, stream=out).warning("held", group="gro\u202epuorg\x1b[2J", groups=["a\u202eb"])
    assert r"gro\u202epuorg\u001b[2J" in out.getvalue()
    assert not set(out.getvalue()) & (HIDDEN - {"\n"})


def test_a_form_of_logs_that_there_is_not_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="TIERSTATE_LOG is 'json' or 'text', not 'bogus'"):
        open_logs({"TIERSTATE_LOG": "bogus"})


@pytest.mark.parametrize(("environ", "as_json"), [({"TIERSTATE_LOG": "json"}, False), ({}, True)])
def test_json_logs_are_one_object_a_line(environ: dict[str, str], as_json: bool) -> None:
    stream = io.StringIO()
    logger = open_logs(environ, as_json=as_json, stream=stream)
    logger.info("one\ntwo", at=object)
    try:
        raise ValueError("no")
    except ValueError:
        logger.exception("failed")
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (first["event"], first["level"]) == ("one\ntwo", "info")
    assert "ValueError: no" in second["exception"]


def test_secrets_are_hidden_by_name() -> None:
    stream = io.StringIO()
    open_logs({}, as_json=True, stream=stream).info("x", sasl_password="hunter2", Authorization="hunter2", topic="t")
    assert "hunter2" not in stream.getvalue()
    assert json.loads(stream.getvalue())["topic"] == "t"


@pytest.mark.parametrize("as_json", [True, False])
def test_secrets_are_hidden_by_value_also_within_what_others_say_and_at_debug_level(as_json: bool) -> None:
    stream = io.StringIO()
    logger = open_logs({}, as_json=as_json, debug=True, secrets=["hunter2", "", "a"], stream=stream)
    logger.debug("hunter2", library="x", error=ValueError("login of app:hunter2 failed"), topic="a topic")
    log_events(logger)(ViewRebuilt("refused: hunter2"))
    try:
        raise ValueError("hunter2")
    except ValueError:
        logger.exception("failed")
    assert "hunter2" not in stream.getvalue()
    assert stream.getvalue().count("(hidden)") >= 4
    assert "a topic" in stream.getvalue(), "what is too short is in too many words"


@pytest.mark.parametrize("as_json", [True, False])
def test_a_secret_that_is_a_word_of_the_log_hides_no_event(as_json: bool) -> None:
    stream = io.StringIO()
    open_logs({}, as_json=as_json, secrets=["agent", "info"], stream=stream).info("agent ready", user="User:agent")
    assert "agent ready" in stream.getvalue()
    assert "User:(hidden)" in stream.getvalue()
    assert stream.getvalue().count("(hidden)") == 1


def test_a_secret_is_recognised_by_its_key_and_not_by_its_origin(tmp_path: Path) -> None:
    file, environ = (
        tmp_path / "tierstate.toml",
        {"A": "agent", "B": "hunter2", "C": "hunter3", "D": "postgresql://u:p@h"},
    )
    file.write_text(
        '[kafka]\n"sasl.username" = { env = "A" }\n"sasl.password" = { env = "B" }\n'
        '[catalog]\n"uri" = { env = "D" }\n"token" = { env = "C" }\n'
    )
    assert set(secrets_of(load_settings(file, (), environ))) == {"hunter2", "hunter3", "postgresql://u:p@h"}


def test_people_read_a_partition_as_kafka_writes_it_and_programs_its_parts() -> None:
    topic_id, line, record = TopicId.of(bytes(16)), io.StringIO(), io.StringIO()
    place, offsets = TopicIdPartition(topic_id, 3), OffsetRange(Offset(0), Offset(99))
    event = SegmentDeleted(place, "orders", RemoteSegmentId.of(bytes(16)), offsets, 7)
    log_events(open_logs({}, stream=line))(event)
    log_events(open_logs({}, as_json=True, stream=record))(event)
    assert "partition=orders-3 " in line.getvalue()
    assert f"topic_id={topic_id}" in line.getvalue()
    assert "offsets=0..99" in line.getvalue()
    entry = json.loads(record.getvalue())
    assert (entry["topic"], entry["topic_id"], entry["partition"]) == ("orders", topic_id, 3)
    assert entry["offsets"] == {"start": 0, "end": 99}


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: str(kind.__name__))
def test_every_event_about_a_partition_says_which_and_of_which_topic(kind: type[Any]) -> None:
    names = {field.name for field in fields(kind)}
    about = {"partition", "topic"} & names
    assert about in (set(), {"partition", "topic"}), names
    if kind.__name__.startswith(
        ("Segment", "Copy", "Term", "Trim", "Local", "LogStart", "Partition", "Operation", "Hold")
    ):
        assert about
    assert "event" not in names, "a name of the log's own"
    assert not names & {"level", "timestamp"}


def test_trouble_is_a_warning_and_what_happens_all_the_time_is_for_debugging() -> None:
    stream = io.StringIO()
    listen = log_events(open_logs({}, as_json=True, stream=stream))
    listen(FactsApplied(1, 2, 3))
    listen(RemoteFetched("k", 1, 0.1))
    listen(ViewRebuilt("position lost"))
    (line,) = stream.getvalue().splitlines()
    record = json.loads(line)
    assert (record["event"], record["level"], record["reason"]) == ("view rebuilt", "warning", "position lost")


@pytest.fixture
def root_logger() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield root
    root.handlers, root.level = handlers, level


def test_warnings_of_libraries_go_the_same_way(root_logger: logging.Logger) -> None:
    stream = io.StringIO()
    take_library_logs(open_logs({}, as_json=True, stream=stream))
    logging.getLogger("botocore").info("chatter")
    logging.getLogger("botocore").warning("slow %s", "down")
    (line,) = stream.getvalue().splitlines()
    assert {"event": "slow down", "library": "botocore", "level": "warning"}.items() <= json.loads(line).items()


def test_a_line_that_cannot_be_written_stops_nothing(root_logger: logging.Logger) -> None:
    stream = io.StringIO()
    take_library_logs(open_logs({}, stream=stream))
    stream.close()
    logging.getLogger("library").warning("nobody reads this")
