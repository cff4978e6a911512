"""The first documents are true: links resolve, commands and settings exist, snippets compile, messages are ours."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tierstate.cli.table import BY_NAME
from tierstate.runtime.metrics import COUNTERS, GAUGES, SECONDS, TALLIES, UNREADABLE
from tierstate.runtime.settings_keys import FIELDS
from tierstate.runtime.settings_load import load_settings

ROOT = Path(__file__).resolve().parents[1]
TABLES = [ROOT / "tests" / "predecessor.md", ROOT / "tests" / "scenarios" / "scenarios.md"]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *TABLES])
SPARKS_OWN = {"DATA_SOURCE_NOT_FOUND", "Failed to find the data source: tierstate"}
ROOMS = sorted(path.parent.name for path in ROOT.glob("*/__init__.py") if path.parent.name not in {"demo", "bench"})
SOURCE = {path: path.read_text() for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))}
LINK = re.compile(r"(?<!\!)\[[^\]\[]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def readme() -> str:
    return (ROOT / "README.md").read_text()


def not_yet() -> str:
    """Return the README's list of what is missing."""
    return readme().partition("\n## What it does not do yet\n")[2].partition("\n## ")[0]


def section(page: str, title: str) -> str:
    text = (ROOT / page).read_text()
    match = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#+ |\Z)", text, re.MULTILINE | re.DOTALL)
    assert match is not None, f"{page} has no section {title!r}"
    return match[1]


def anchor_of(title: str) -> str:
    """Return GitHub's anchor: lower case, words only, spaces to hyphens."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def anchors(path: Path) -> set[str]:
    prose = FENCE.sub("", path.read_text())
    return {anchor_of(title) for title in re.findall(r"^#+ (.+)$", prose, re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in LINK.findall(FENCE.sub("", page.read_text())):
        assert "://" not in link, f"{link}: prose links inside the checkout"
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{link}: no such file"
        assert target.is_relative_to(ROOT), f"{link}: leaves the checkout"
        if anchor:
            assert anchor in anchors(target), f"{link}: no such heading"


def test_every_page_of_docs_is_reached_from_the_readme() -> None:
    seen, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        links = LINK.findall(FENCE.sub("", page.read_text()))
        waiting += [(page.parent / link.partition("#")[0]).resolve() for link in links if not link.startswith("#")]
    assert set(PAGES) - seen == set()


def test_every_page_that_the_code_names_exists() -> None:
    named = {name for text in SOURCE.values() for name in re.findall(r"docs/[a-z-]+\.md", text)}
    assert {name for name in named if not (ROOT / name).exists()} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    for file, name in re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)", page.read_text()):
        assert f"def {name}(" in (ROOT / file).read_text(), f"{page.name} names {file}::{name}"


def test_the_readme_opens_with_the_two_commands() -> None:
    first = FENCE.search(readme())
    assert first is not None
    assert [line.split("#")[0].strip() for line in first[2].splitlines()] == ["make demo", "make test"]
    assert readme().index(first[0]) < readme().index("\n## ")


def test_the_map_has_every_package_in_its_layer() -> None:
    layers = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]["layers"]
    picture = FENCE.search(section("README.md", "The map"))
    assert picture is not None
    floors = [
        re.findall(r"^(\w+)/", floor, re.MULTILINE) for floor in re.split(r"^─+$", picture[2], flags=re.MULTILINE)
    ]
    assert [sorted(floor) for floor in floors] == [sorted(re.findall(r"\w+", layer)) for layer in layers]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_that_is_named_exists_or_is_listed_as_missing(page: Path) -> None:
    text = page.read_text()
    shown = re.findall(
        r"^\s*(?:\$ )?tierstate ([a-z][a-z-]+)", "\n".join(code for _, code in FENCE.findall(text)), re.MULTILINE
    )
    inline = re.findall(r"`(?:\S+/)?tierstate ([a-z][a-z-]+)", FENCE.sub("", text))
    missing = set(re.findall(r"`tierstate ([a-z-]+)`", not_yet()))
    assert {name for name in [*shown, *inline] if name not in BY_NAME and name not in missing} == set()


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield all commands; those of a group by both words, such as ``table check``."""
    waiting = [
        (name, getattr(importlib.import_module(f"tierstate.cli.{entry.module}"), entry.function))
        for name, entry in BY_NAME.items()
    ]
    while waiting:
        name, command = waiting.pop()
        if isinstance(command, click.Group):
            waiting += [(f"{name} {word}", inner) for word, inner in command.commands.items()]
        else:
            yield name, command


def test_the_page_on_the_bucket_names_every_command_that_reads_it_alone() -> None:
    match = re.search(r"^`--source bucket` is a flag of (.+?)\.$", (ROOT / "docs/bucket.md").read_text(), re.MULTILINE)
    assert match is not None
    have = {name for name, command in commands() if any(parameter.name == "as_of" for parameter in command.params)}
    assert set(re.findall(r"`([a-z ]+)`", match[1])) == have


def rooms_that_read_settings() -> str:
    return "\n".join(text for path, text in SOURCE.items() if path.parent.name not in ("runtime", "spark"))


def test_every_other_setting_is_read_somewhere() -> None:
    read = rooms_that_read_settings() + "".join(
        (ROOT / "runtime" / name).read_text() for name in ("settings.py", "gateway_settings.py", "proxy_settings.py")
    )
    for path in FIELDS:
        match = re.search(rf"\b(settings|section|wanted|tls|own|self|cache|auth)\.(\w+\.)*{path[-1]}\b", read)
        assert match, f"{'.'.join(path)}: nobody reads it"


def test_every_setting_that_a_page_names_exists() -> None:
    keys = {".".join(path) for path in FIELDS}
    sections = {path[0] for path in FIELDS if len(path) > 1} - {"kafka"}
    for page in PAGES:
        for name in re.findall(r"`([a-z_]+\.[a-z_]+(?:\.[a-z_]+)?)[=`]", page.read_text()):
            if name.split(".")[0] in sections and not name.endswith((".py", ".md", ".toml", ".ms", ".bytes")):
                assert name in keys, f"{page.name}: {name}"


def actions() -> dict[str, str]:
    """Return what a person does when a metric moves, by metric."""
    table = section("docs/operations.md", "What to watch")
    rows = re.findall(r"^\| (`tierstate_.+?`) \| (.+) \|$", table, re.MULTILINE)
    named = [(name, what) for names, what in rows for name in re.findall(r"`(\w+)`", names)]
    assert len(named) == len(dict(named)), "a metric has two rows"
    return dict(named)


def test_every_metric_has_an_action_in_the_table_and_the_table_names_no_other() -> None:
    rows = actions()
    assert rows.keys() == {*COUNTERS, *TALLIES, *SECONDS, *GAUGES, UNREADABLE}
    for name, what in rows.items():
        assert re.search(r"`[^`]+`|\]\(", what), f"{name}: no command, no setting, no page"


def test_the_docs_speak_of_no_metric_that_is_not_there() -> None:
    for page in PAGES:
        if page.name != "CHANGELOG.md" and page.parent.name != "decisions":  # they describe earlier releases
            assert set(re.findall(r"`(tierstate_[a-z_]+)`", page.read_text())) <= actions().keys(), page


@pytest.mark.parametrize(
    ("page", "title"), [("docs/operations.md", "Troubleshooting"), ("docs/spark.md", "What went wrong")]
)
def test_every_message_in_the_troubleshooting_table_is_one_of_ours(page: str, title: str) -> None:
    rows = re.findall(r"^\| (`.+?) \| ", section(page, title), re.MULTILINE)
    messages = [message for row in rows for message in re.findall(r"`([^`]+)`", row) if message not in SPARKS_OWN]
    assert len(messages) > 18
    texts = [re.sub(r"\"\s*f?\"", "", re.sub(r"\s+", " ", text)) for text in SOURCE.values()]
    for message in messages:
        pieces = [piece.strip() for piece in re.sub(r"^not (copied|trimmed|expired): ", "", message).split("…")]
        assert any(all(piece in text for piece in pieces) for text in texts), message


def test_snippets_compile_and_settings_snippets_load(tmp_path: Path) -> None:
    kinds = []
    for page in PAGES:
        for kind, code in FENCE.findall(page.read_text()):
            kinds.append(kind)
            if kind == "python":
                ast.parse(code)
            elif kind in ("bash", "sh"):
                subprocess.run(["bash", "-n", "-c", code], check=True)
            elif kind == "toml":
                file = tmp_path / "tierstate.toml"
                file.write_text(re.sub(r"\{ (file|command) = .* \}", '{ env = "SECRET" }', code))  # there is none
                load_settings(file, (), {"SECRET": "x"})
    assert {"python", "toml", "bash", "sh"} <= set(kinds)


def test_no_page_names_a_registry_or_a_folder_of_one_machine() -> None:
    deployed = [path for path in ROOT.glob("deploy/**/*") if path.is_file()]
    for page in [*PAGES, ROOT / "compose.yaml", ROOT / "Dockerfile", *deployed]:
        places = re.findall(
            r"/roo[t]/|/wor[k]/|/home/\w|pyp[i]\.org|docker\.io|ghcr\.io|quay\.io|rep[o]1\.maven", page.read_text()
        )
        assert places == [], page.name
