"""`--execute` and `--dry-run` mean one thing in every command, and the docs list what each does without them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tierstate.cli.context import Context
from tierstate.cli.flags import acts
from tierstate.cli.main import root

OPERATIONS = Path(__file__).resolve().parents[2] / "docs" / "operations.md"

ADDS = {"init", "pause", "resume", "keys new", "certify", "export", "table create", "backup"}
DECIDES = {
    "delete-records", "disable", "sweep", "rescue", "undelete", "settle", "keep-prefix", "accept-gap", "release",
    "leases", "recover", "keys rotate", "table compact", "table evolve", "table repair", "table drop", "restore topic",
    "restore groups", "restore acls", "restore quotas", "restore subjects", "migrate", "adopt",
}  # fmt: skip
LOOKS = {
    "check", "config", "topics", "describe", "segments", "verify", "digest", "consume", "dump-log", "facts", "replay",
    "diff", "keys list", "status", "table check", "table list", "table show",
}  # fmt: skip
RUNS = {"agent", "drill", "gateway", "proxy", "table follow", "sandbox up", "sandbox down", "sandbox status"}


def commands(group: click.Group = root, before: str = "") -> Iterator[tuple[str, click.Command]]:
    with click.Context(group, obj=Context()) as ctx:
        for name in group.list_commands(ctx):
            command = group.get_command(ctx, name)
            assert command is not None
            if isinstance(command, click.Group):
                yield from commands(command, f"{before}{name} ")
            else:
                yield f"{before}{name}", command


def flag_of(command: click.Command) -> click.Option | None:
    """Return the option to which either of the two flags belongs."""
    options = [
        option
        for option in command.params
        if isinstance(option, click.Option) and {"--execute", "--dry-run"} & {*option.opts, *option.secondary_opts}
    ]
    assert len(options) <= 1, "two options for one decision"
    return options[0] if options else None


FLAGS = {name: flag_of(command) for name, command in commands()}


def test_every_command_is_of_one_kind() -> None:
    kinds = (ADDS, DECIDES, LOOKS, RUNS)
    assert sorted(name for kind in kinds for name in kind) == sorted(FLAGS), "say what a new command does"


@pytest.mark.parametrize("name", sorted(ADDS | DECIDES))
def test_commands_that_change_something_take_both_flags_and_explain_the_default(name: str) -> None:
    flag = FLAGS[name]
    assert flag is not None
    assert (flag.opts, flag.secondary_opts) == (["--execute"], ["--dry-run"])
    assert flag.default is (name in ADDS)
    assert ("Without either it is done" in str(flag.help)) is (name in ADDS)


@pytest.mark.parametrize("name", sorted(LOOKS | RUNS))
def test_commands_that_only_look_take_neither_flag(name: str) -> None:
    assert FLAGS[name] is None


@pytest.mark.parametrize("unasked", [True, False])
@pytest.mark.parametrize(
    ("flags", "done"),
    [([], None), (["--execute"], True), (["--dry-run"], False), (["--execute", "--dry-run"], False)],
)
def test_a_flag_means_the_same_whatever_is_done_without(unasked: bool, flags: list[str], done: bool | None) -> None:
    @click.command()
    @acts(unasked=unasked)
    def change(execute: bool) -> None:
        click.echo(execute)

    assert CliRunner().invoke(change, flags).output.strip() == str(unasked if done is None else done)


def test_the_docs_say_what_is_done_without_a_flag() -> None:
    text = OPERATIONS.read_text().partition("## Shown or done\n")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| [^|]+ \| (done|shown) \| (.+) \|$", text, re.MULTILINE))
    listed = {kind: {text.split(" --")[0] for text in re.findall("`([^`]+)`", row)} for kind, row in rows.items()}
    assert listed == {"done": ADDS, "shown": DECIDES}
