"""A shell that types the commands of a page, and compares their output with the output that the page shows."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.docs.blocks import Block
from tests.scenarios import forked
from tests.scenarios.house import Done, environment
from tierstate.sandbox.artifacts import find_java, kafka_libs

PATIENCE_S = 300.0
_ID = re.compile(r"[A-Za-z0-9_-]{22,}")
_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
_LOG = re.compile(r"\[(?:info|warning|error) +\]")
_TOOLS = {
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
}


@dataclass
class PageShell:
    """``meant``: texts of the page with their values on this machine: ``{"HOST:PORT": "127.0.0.1:21044"}``.

    ``forks``: commands of tierstate start as `tests/scenarios/forked.py` starts them, in the folder ``/``.
    """

    folder: Path
    meant: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    forks: bool = False
    _running: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        tools = self.folder / ".bin"
        tools.mkdir(parents=True)
        for name, main in _TOOLS.items():
            java = f"{shlex.quote(find_java())} -XX:TieredStopAtLevel=1 -cp '{kafka_libs()}/*'"
            (tools / name).write_text(f'#!/bin/sh\nexec {java} {main} "$@"\n')
            (tools / name).chmod(0o755)
        ours = Path(sys.executable).parent
        self._path = f"{tools}:{ours}:{os.environ['PATH']}"

    def here(self, text: str) -> str:
        """Return a text of the page with this machine's values."""
        for shown, meant in self.meant.items():
            text = text.replace(shown, meant)
        return text

    def there(self, text: str) -> str:
        """Return a text of this machine with the page's values."""
        for shown, meant in sorted(self.meant.items(), key=lambda each: -len(each[1])):
            text = text.replace(meant, shown)
        return text

    def type(self, command: str) -> Done:
        """Type a command, and wait for its end. A process that it leaves behind with ``&`` stays until `close`."""
        if export := re.fullmatch(r"export (\w+)=(.+)", self.here(command)):
            (self.variables[export[1]],) = shlex.split(export[2])
            return Done(command, 0, "", "")
        variables = {**environment(), "PATH": self._path, **self.variables}
        if self.forks and re.fullmatch(r"tierstate [^|&>$]+", command):
            return forked.command(shlex.split(self.here(command), comments=True)[1:], variables, PATIENCE_S)
        process = subprocess.Popen(
            ["bash", "-c", self.here(command)],
            cwd=self.folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        if command.endswith("&"):
            self._running.append(process)
        out, err = process.communicate(timeout=PATIENCE_S)
        return Done(command, process.returncode, out, err)

    def shows(self, command: str, lines: list[str], kept: frozenset[str] = frozenset(), code: int = 0) -> None:
        """Type a command that ends with ``code`` and prints what the page shows. ``kept``: numbers that must be equal.

        A process that just began in the background may need a while until its log has these lines.
        """
        deadline = time.monotonic() + PATIENCE_S
        while True:
            done = self.type(command)
            out, err = (self.there(text).splitlines() for text in (done.stdout, done.stderr))
            differs = difference(lines, out, err, kept)
            if done.returncode == code and not differs:
                return
            waits = self._running and command.startswith("tail ")
            if not waits or time.monotonic() > deadline:
                raise AssertionError(f"{differs}\n{done}")
            time.sleep(0.2)

    def close(self) -> None:
        """End the processes that were started in the background."""
        for process in self._running:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def difference(
    expected: list[str], printed: list[str], noted: Sequence[str] = (), kept: frozenset[str] = frozenset()
) -> str:
    """Return "" if a command printed what the page shows, else the first line that differs.

    ``noted``: lines of stderr, which a terminal shows among the others. Ids, digests and numbers differ in each run;
    one id of the page is one id of the run. `…` stands for the rest of a word or a line; a line that begins with it and
    is no line of the log stands for any lines. Lines of the log may be left out. The page may show fewer or more of
    adjacent lines that have the same form.
    """
    ids: dict[str, str] = {}
    streams = [[line for line in lines if line.strip()] for lines in (printed, noted)]
    anything, before = False, ""
    for line in (line for line in expected if line.strip()):
        form = _form(line, kept)
        if line.lstrip().startswith("…") and not _LOG.search(line):
            anything = True
            continue
        ready = [_from(stream, form, before, anything, kept) for stream in streams]
        stream = next((stream for stream in ready if stream), None)
        if stream is None and form == before:
            continue
        if stream is None:
            return f"the page has: {line}"
        if "…" not in line and form != before:
            for shown, printed_id in zip(_ID.findall(line), _ID.findall(stream[0]), strict=True):
                if ids.setdefault(shown, printed_id) != printed_id:
                    return f"the page has {shown} where another id is printed: {stream[0]}"
        streams = [stream[1:] if one is stream else old for one, old in zip(ready, streams, strict=True)]
        anything, before = False, form
    left = [line for stream in streams for line in stream if not (_LOG.search(line) or _form(line, kept) == before)]
    return f"the page does not have: {left[0]}" if left and not anything else ""


def _from(stream: list[str], form: str, before: str, anything: bool, kept: frozenset[str]) -> list[str]:
    """Return the stream from the line of this form on, or an empty list if that line does not come next."""
    for at, line in enumerate(stream):
        printed = _form(line, kept)
        if _same(form, printed):
            return stream[at:]
        if not (anything or _LOG.search(line) or printed == before):
            break
    return []


def _form(line: str, kept: frozenset[str]) -> str:
    """Return the line without what differs from run to run: columns are as wide as their longest cell."""
    masked = _NUMBER.sub(lambda found: found[0] if found[0] in kept else "N", _ID.sub("ID", line))
    return " ".join(masked.split())


def _same(form: str, printed: str) -> bool:
    pieces = [re.escape(piece.strip()) for piece in re.sub(r"\S*…", "…", form).split("…")]
    return re.fullmatch(".*".join(pieces), printed) is not None


def types(shell: PageShell, block: Block, codes: Mapping[str, int] | None = None) -> list[Done]:
    """Type each command of a block. ``codes``: exit codes of the commands that do not end with 0."""
    done: list[Done] = []
    if block.kind == "console":
        for command, lines in block.examples():
            shell.shows(command, lines, code=(codes or {}).get(command, 0))
        return done
    for command in block.commands():
        done.append(shell.type(command))
        assert done[-1].returncode == (codes or {}).get(command, 0), done[-1]
    return done


def replaced(code: str, meant: Mapping[str, str]) -> str:
    """Return a program of a page with the addresses of this run. Each text must be there."""
    for shown, here in meant.items():
        assert shown in code, shown
        code = code.replace(shown, here)
    return code
