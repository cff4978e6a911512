"""Pages for people in a hurry: their commands can be typed, and their figures are in the sources that they name."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from tests.broker.roles import INIT, ONLY_TO_BACK_UP, READER
from tests.test_deploy import COMPOSE, parse
from tests.test_docs import FENCE, LINK, PAGES, ROOT, SOURCE, anchor_of, not_yet
from tierstate.broker.acls import AGENT, Resource, Right
from tierstate.schemas.registry import schemas

PRODUCTION, KUBERNETES = ROOT / "docs" / "production.md", ROOT / "docs" / "kubernetes.md"
ON_FIRE, UPGRADE = ROOT / "docs" / "on-fire.md", ROOT / "docs" / "upgrade.md"
ALERTS: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def text_under(page: Path, anchor: str) -> str:
    """Return the text under the heading, up to the next heading of its level or above."""
    lines, body, level = page.read_text().splitlines(), [], 0
    for line in lines:
        heading = re.match(r"(#+) (.+)", line)
        if heading and level and len(heading[1]) <= level:
            break
        if level:
            body.append(line)
        elif heading and anchor_of(heading[2]) == anchor:
            level = len(heading[1])
    assert body, f"{page.name}#{anchor}"
    return "\n".join(body)


# --- what is typed ---------------------------------------------------------------------------------------------------

MEANT = {"T": "t", "T:P": "t:0", "T[:P]": "t:0", "T_ID[:P]": "t", "TOPIC_ID:0": "t:0", "OFFSET": "1", "N": "1"}
"""Placeholders of the pages for a name or a number, and their values here."""


def words_of(command: str) -> list[str]:
    """Return the words of a command up to a pipe, a comment, or the prose that a page sets next to it."""
    plain = re.split(r"\s{3,}|\s[|&>#]|…", command)[0]
    return [MEANT.get(word, word) for word in shlex.split(plain)]


def fenced(page: Path) -> list[str]:
    """Return our commands that a page shows: in a console after the prompt, otherwise at the begin of a line."""
    commands = []
    for kind, code in FENCE.findall(page.read_text()):
        begin = r"\$ " if kind == "console" else ""
        commands += re.findall(rf"^{begin}tierstate (.+)$", code, re.MULTILINE)
    return commands


def inline(page: Path) -> list[str]:
    prose = FENCE.sub("", page.read_text())
    return [" ".join(command.split()) for command in re.findall(r"`tierstate ([a-z][^`]+)`", prose)]


@pytest.mark.parametrize("page", [page for page in PAGES if fenced(page)], ids=name_of)
def test_every_command_that_is_shown_passes_the_command_line_parser(page: Path) -> None:
    for command in fenced(page):
        try:
            parse(words_of(command))
        except click.exceptions.Exit:
            assert command == "--version"
        except click.UsageError as error:
            raise AssertionError(f"tierstate {command}: {error.format_message()}") from error


@pytest.mark.parametrize("page", [page for page in PAGES if inline(page)], ids=name_of)
def test_every_flag_that_a_sentence_names_exists(page: Path) -> None:
    """A sentence may leave arguments out, but it may not name a flag that does not exist."""
    missing = set(re.findall(r"`tierstate ([a-z-]+)`", not_yet()))
    for command in inline(page):
        if command in missing or command.startswith("release T:P [HOLD_ID]"):
            continue
        try:
            parse(words_of(command))
        except click.MissingParameter:
            continue
        except click.UsageError as error:
            raise AssertionError(f"tierstate {command}: {error.format_message()}") from error


def test_the_pages_for_an_outage_show_commands() -> None:
    assert len(fenced(ON_FIRE)) > 20
    assert fenced(UPGRADE)


def test_alerts_serve_processes_in_pods_and_agents_that_are_beside_no_broker() -> None:
    notes = {rule["alert"]: rule["annotations"] for rule in ALERTS}
    units = {name: each["command"] for name, each in notes.items() if "journalctl" in each["command"]}
    assert units
    assert [name for name, command in units.items() if "kubectl logs POD" not in command] == []
    assert "its broker" not in notes["TierstateAgentSilent"]["description"].lower()


def test_a_flag_that_does_not_exist_is_noticed() -> None:
    for wrong in ("recover --exeucte", "verify", "verify orders --level 9", "recovr"):
        with pytest.raises(click.UsageError):
            parse(words_of(wrong))


def test_commands_that_change_something_are_marked_on_the_page_for_an_outage() -> None:
    """A person in a hurry types what is on the page: a command that changes something needs a warning there."""
    acting = {"pause", "resume", "disable", "init", "agent", "certify", "sandbox"}
    for _, code in FENCE.findall(ON_FIRE.read_text()):
        assert "--execute" not in code
        if {line.split()[1] for line in code.splitlines() if line.startswith("tierstate ")} & acting:
            before = ON_FIRE.read_text().split(code)[0].rpartition("\n\n")[0].splitlines()[-1]
            assert "**acts**" in before


VERDICTS = {"not healthy", "not ready"}
"""Answers of the management port (`test_production.py` asks it)."""


def test_every_message_that_the_page_for_an_outage_quotes_is_one_of_ours() -> None:
    texts = [re.sub(r"\"\s*f?\"", "", re.sub(r"\s+", " ", text)) for text in SOURCE.values()]
    rows = [line.split("|")[1] for line in ON_FIRE.read_text().splitlines() if line.startswith("|")]
    quoted = {text for row in rows for text in re.findall(r"`([^`]+)`", row)} - VERDICTS
    assert len(quoted) > 15
    for message in quoted:
        pieces = [piece.strip() for piece in re.split(r"…|\bN\b", message)]
        assert any(all(piece in text for piece in pieces) for text in texts), message


# --- rights ----------------------------------------------------------------------------------------------------------


def rights_of(rights: tuple[Right, ...]) -> dict[str, set[str]]:
    """Return operations by resource, as kafka-acls writes both: ``DescribeConfigs`` (`test_acls.py` asks the tool)."""
    flags = {
        Resource.TIER_STATE: "--topic _tier-state",
        Resource.TOPICS: "--topic orders",
        Resource.EVERY_TOPIC: "--topic *",
        Resource.CLUSTER: "--cluster",
        Resource.EVERY_GROUP: "--group *",
    }
    operations: dict[str, set[str]] = defaultdict(set)
    for right in rights:
        operations[flags[right.resource]].add(right.typed)
    return operations


def shown_acls() -> dict[str, dict[str, set[str]]]:
    """Return the same by user, from the commands of the page."""
    acls: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for line in re.findall(r"^\$ACLS (.+)$", PRODUCTION.read_text(), re.MULTILINE):
        words = shlex.split(line)
        user, operations, resource = "", set(), ""
        while words:
            match words.pop(0):
                case "--allow-principal":
                    user = words.pop(0).removeprefix("User:")
                case "--operation":
                    operations.add(words.pop(0))
                case "--cluster":
                    resource = "--cluster"
                case "--topic" | "--group" | "--user-principal" as kind:
                    resource = f"{kind} {words.pop(0)}"
                case other:
                    raise AssertionError(f"{other}: what is that?")
        acls[user][resource] |= operations
    return acls


def test_the_acl_commands_give_exactly_the_rights_of_the_one_list() -> None:
    rights = {"agent": rights_of((*AGENT, *ONLY_TO_BACK_UP)), "reader": rights_of(READER), "operator": rights_of(INIT)}
    # in addition to a reader's rights: tokens for its callers
    assert shown_acls() == {**rights, "gateway": {"--user-principal *": {"CreateTokens"}}}


# --- figures ---------------------------------------------------------------------------------------------------------

MEASURED = re.compile(r"\]\(((?:benchmarks|scale)\.md)#([\w-]+)\)")
EXACT = re.compile(r"\d+(?:,\d{3})+|\d+\.\d+")


def rows_with_a_source(page: Path) -> list[str]:
    return [line for line in page.read_text().splitlines() if line.startswith("|") and MEASURED.search(line)]


@pytest.mark.parametrize("page", [PRODUCTION, ON_FIRE], ids=name_of)
def test_every_figure_that_names_its_source_is_there(page: Path) -> None:
    assert rows_with_a_source(page)
    for row in rows_with_a_source(page):
        sources = "\n".join(text_under(ROOT / "docs" / file, anchor) for file, anchor in MEASURED.findall(row))
        for figure in EXACT.findall(LINK.sub("", row)):
            assert figure in sources, f"{figure}: {row}"


def test_every_figure_of_the_sizing_table_has_a_source_that_has_it() -> None:
    table = [line for line in text_under(PRODUCTION, "sizing").splitlines() if line.startswith("|")][2:]
    assert len(table) > 10
    for row in table:
        _, figure, _ = (cell.strip() for cell in row.strip("|").split("|"))
        number = re.match(r"[\d,.]+", figure)
        assert number is not None
        ((file, anchor),) = MEASURED.findall(row)
        assert re.search(rf"(?<![\d.]){re.escape(number[0])}(?![\d.])", text_under(ROOT / "docs" / file, anchor)), row


# --- what leads where ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: str(rule["alert"]))
def test_an_alert_leads_to_the_reference_or_to_the_page_for_an_outage(rule: dict[str, Any]) -> None:
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert ROOT / page in (ROOT / "docs" / "operations.md", ON_FIRE)
    assert text_under(ROOT / page, anchor)


def test_critical_alerts_are_on_the_page_for_an_outage() -> None:
    there = {name.removeprefix("operations.md#") for name in LINK.findall(ON_FIRE.read_text())}
    critical = [rule["annotations"]["runbook"] for rule in ALERTS if rule["labels"]["severity"] == "critical"]
    assert critical
    assert {link.partition("#")[2] for link in critical if "on-fire" not in link} - there == set()


def test_every_file_to_deploy_is_on_the_page() -> None:
    page = PRODUCTION.read_text() + KUBERNETES.read_text()
    assert "deploy/helm/values.yaml" in page
    for path in ROOT.glob("deploy/**/*"):
        if path.is_file() and "helm" not in path.parts and path.name not in ("make_bucket.py", "tierstate.toml"):
            assert f"{path.relative_to(ROOT)}" in page, path.name


def test_every_image_of_ours_is_of_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    texts = [path.read_text() for path in (PRODUCTION, KUBERNETES, *ROOT.glob("deploy/kubernetes/*.yaml"))]
    tags = {tag for text in texts for tag in re.findall(r"tierstate(?:-table)?:(\d\S+)", text)}
    chart = yaml.safe_load((ROOT / "deploy" / "helm" / "Chart.yaml").read_text())
    tags |= {chart["version"], chart["appVersion"]}
    tags |= {one["image"].partition(":")[2] for one in COMPOSE["services"].values() if "tierstate" in one["image"]}
    assert tags == {version}


def test_the_page_on_upgrades_knows_every_version_of_the_facts() -> None:
    newest = max(int(name.split(".")[1].removeprefix("v")) for name in schemas())
    assert f"tierstate.v{newest}.*" in UPGRADE.read_text()
