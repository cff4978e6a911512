"""`docs/http.md`: its tables are generated from the gateway's code, its answers come from a running gateway.

python -m tests.docs.http_page            # print what no longer holds
python -m tests.docs.http_page --write    # put it right
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.docs.generated import table, with_parts
from tests.docs.http_world import Gateways, app, gateways
from tierstate.api.models import Partition
from tierstate.api.plans import PlanCall, PlanRange
from tierstate.api.problems import INVALID_PARAMETER, OF_ERROR, UNKNOWN_PARTITION

PAGE = Path(__file__).parents[2] / "docs" / "http.md"
OPEN, GUARDED = "http://127.0.0.1:8080", "https://127.0.0.1:8443"
"""The addresses on the page."""
_BLOCK = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)
_OURS = (
    (re.compile(r"^(date: ).*$", re.MULTILINE), r"\1…"),
    (re.compile(r'("\w*(?:bytes|sha256|crc32c)":\s*)("?)\w+\2'), r"\1…"),
    (re.compile(r"(retry.after\W{1,3})\d+", re.IGNORECASE), r"\1…"),
    (re.compile(r"^(content-length: ).*$", re.MULTILINE), r"\1…"),
)
"""Values that differ between machines, days, and versions of a compressor."""


@dataclass(frozen=True, slots=True)
class Example:
    """A command as typed, continuation lines included. The answer is empty, or ends with a newline."""

    typed: str
    answer: str

    @property
    def command(self) -> str:
        return "\n".join(line[2:] for line in self.typed.splitlines())


def examples(block: str) -> list[Example]:
    """Return the examples of one ``console`` block."""
    parsed: list[Example] = []
    for line in block.splitlines(keepends=True):
        if line.startswith("$ "):
            parsed.append(Example(line, ""))
        elif line.startswith("> ") and not parsed[-1].answer:
            parsed[-1] = Example(parsed[-1].typed + line, "")
        else:
            parsed[-1] = Example(parsed[-1].typed, parsed[-1].answer + line)
    return parsed


def masked(answer: str) -> str:
    """Return the answer without the values that differ from run to run."""
    for pattern, instead in _OURS:
        answer = pattern.sub(instead, answer)
    return answer


class Terminal:
    """A shell that runs what a reader of the page types, in one folder. ``curl``: instead of the machine's program."""

    def __init__(self, folder: Path, asked: Gateways, curl: str | None = None) -> None:
        self._folder, self._asked = folder, asked
        self._typed: list[str] = []
        tools = folder / "bin"
        tools.mkdir()
        ours = f"{shlex.quote(sys.executable)} {shlex.quote(str(Path(__file__).with_name('curl.py')))}"
        for name, command in (("python3", shlex.quote(sys.executable)), ("curl", curl or shutil.which("curl") or ours)):
            (tools / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
            (tools / name).chmod(0o755)
        self._path = f"{tools}{os.pathsep}{os.environ['PATH']}"
        shutil.copy(asked.certificate, folder / "ca.pem")

    def run(self, command: str) -> str:
        """Return the output of a command, with the page's addresses. It has the variables that earlier commands set."""
        settings = "\n".join(self._typed).replace(OPEN, self._asked.open).replace(GUARDED, self._asked.guarded)
        if re.fullmatch(r"(\w+=\S+ ?)+", command):
            self._typed.append(command)
            return ""
        done = subprocess.run(
            ["bash", "-c", f"{settings}\n{command}"],
            cwd=self._folder,
            env={**os.environ, "PATH": self._path, "NO_PROXY": "127.0.0.1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        output = done.stdout.replace("\r", "").replace(self._asked.open, OPEN).replace(self._asked.guarded, GUARDED)
        return output.rstrip("\n") + "\n" if output.strip() else ""


def answered(page: str, curl: str | None = None) -> str:
    """Return the page with a gateway's answers of now; an answer that differs in masked values only stays."""
    with tempfile.TemporaryDirectory() as name, gateways(Path(name)) as running:
        folder = Path(name) / "reader"
        folder.mkdir()
        terminal = Terminal(folder, running, curl)

        def block(found: re.Match[str]) -> str:
            return "".join(case.typed + _kept(case.answer, terminal.run(case.command)) for case in examples(found[0]))

        return _BLOCK.sub(block, page)


def _kept(before: str, now: str) -> str:
    return before if masked(before) == masked(now) else now


# --- tables ----------------------------------------------------------------------------------------------------


def parts() -> dict[str, str]:
    """Return the generated parts, by the name of their place in the page."""
    document = app().openapi()
    records = document["paths"]["/v1/topics/{topic}/partitions/{partition}/records"]["get"]["parameters"]
    fields = document["components"]["schemas"][Partition.__name__]["properties"]
    return {
        "parameters": table(
            ("parameter", "is", "default", ""),
            [
                (
                    f"`{row['name']}`",
                    _kind(row["schema"], document),
                    _default(row["schema"]),
                    row.get("description", ""),
                )
                for row in records
                if row["in"] == "query"
            ],
        ),
        "partition": table(
            ("field", "is", ""),
            [(f"`{name}`", _kind(field, document), field.get("description", "")) for name, field in fields.items()],
        ),
        "plan": table(
            ("field", "is", "default", ""),
            [
                (f"`{name}`", _kind(field, document), _default(field), field.get("description", ""))
                for model in (PlanCall, PlanRange)
                for name, field in document["components"]["schemas"][model.__name__]["properties"].items()
            ],
        ),
        "problems": table(("status", "`error_code` `error`, `Retry-After`", ""), sorted(_problems())),
    }


def _kind(schema: dict[str, Any], said: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_kind(kind, said) for kind in schema["anyOf"])
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        model = said["components"]["schemas"][name]
        return ", ".join(f"`{value}`" for value in model["enum"]) if "enum" in model else name
    if schema["type"] == "array":
        return f"list of {_kind(schema['items'], said)}"
    low = schema.get("minimum")
    high = schema.get("maximum")
    bounds = f", {low:.0f} to {high:.0f}" if high is not None else f", at least {low:.0f}" if low else ""
    kind = str(schema["type"])
    return {"integer": "number", "string": "text", "boolean": "true, false"}.get(kind, kind) + bounds


def _default(schema: dict[str, Any]) -> str:
    value = schema.get("default")
    return "" if value is None else f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _problems() -> Iterator[tuple[str, ...]]:
    for kind, problem in OF_ERROR.items():
        name = "InternalError" if kind is Exception else kind.__name__
        about = "A bug in tierstate." if kind is Exception else (kind.__doc__ or "").strip().partition("\n")[0]
        about = about.replace("``", "`")
        wait = "" if problem.retry_after is None else f", {problem.retry_after} s"
        yield str(problem.status), f"{problem.error_code} `{name}`{wait}", about
    yield "404", f"{UNKNOWN_PARTITION} `UnknownTopic`", "The topic has no such partition."
    yield "400", f"{INVALID_PARAMETER} `InvalidRequest`", "A parameter is wrong; each is named."
    yield "404", "40450 `HttpError`", "No such route."
    yield "405", "40550 `HttpError`", "Not a GET; of a plan, not a POST."


def main() -> int:
    page = PAGE.read_text()
    now = answered(with_parts(page, parts()))
    if "--write" in sys.argv[1:]:
        PAGE.write_text(now)
        return 0
    if now != page:
        print("docs/http.md does not say what the gateway says: python -m tests.docs.http_page --write")
    return int(now != page)


if __name__ == "__main__":
    sys.exit(main())
