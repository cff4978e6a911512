from __future__ import annotations

import importlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import pytest

from tests.log.batches import golden_folder
from tierstate.cli.context import Context
from tierstate.cli.main import run
from tierstate.cli.table import ENTRIES, SECTIONS, CommandEntry

Tierstate = Callable[..., subprocess.CompletedProcess[str]]


def clean_environment(**more: str) -> dict[str, str]:
    """Return the environment without variables that change the settings, or how Python flushes."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TIERSTATE_", "PYTHON"))}
    return kept | more


@pytest.fixture
def tierstate(tmp_path: Path) -> Tierstate:
    """Return a function that runs the program itself, in an empty folder."""

    def call(*args: str, **environ: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tierstate.cli.main", *args]
        env = clean_environment(**environ)
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)

    return call


def commands_below(command: click.Command, path: Sequence[str]) -> list[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        return [(" ".join(path), command)]
    return [pair for name, below in command.commands.items() for pair in commands_below(below, [*path, name])]


def test_help_groups_the_commands_by_section(tierstate: Tierstate) -> None:
    text = tierstate("--help").stdout
    headings = [line[:-1] for line in text.splitlines() if re.fullmatch("[A-Z][a-z]+:", line) and line != "Options:"]
    assert headings == [section for section in SECTIONS if any(entry.section == section for entry in ENTRIES)]
    for entry in ENTRIES:
        assert re.search(rf"^  {entry.name} +{re.escape(entry.help[:20])}", text, re.MULTILINE), entry.name


def test_help_imports_no_command_and_no_package(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom tierstate.cli.main import run\nrun(['--help'])\n"
        "heavy = ('pydantic', 'rich', 'confluent_kafka', 'pyarrow', 'numpy', 'boto3', 'fastapi', 'pyspark')\n"
        "rooms = [name for name in sys.modules if name.startswith('tierstate.')"
        " and name.split('.')[1] not in ('cli', 'state')]\n"
        "sys.exit(str([*rooms, *(name for name in heavy if name in sys.modules)]) if rooms or"
        " set(heavy) & set(sys.modules) else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: str(entry.name))
def test_every_command_of_the_table_exists_and_shows_an_example(entry: CommandEntry) -> None:
    name, module = entry.name, entry.module
    command = getattr(importlib.import_module(f"tierstate.cli.{module}"), entry.function)
    assert command.name == name
    for path, leaf in commands_below(command, [name]):
        assert f"tierstate {path}" in (leaf.epilog or ""), path
        assert leaf.help, path


def test_flags_stand_before_or_after_the_command(tierstate: Tierstate) -> None:
    before = tierstate("--json", "--set", "copy.concurrency=8", "config")
    after = tierstate("config", "--json", "--set", "copy.concurrency=8")
    assert before.stdout == after.stdout
    assert json.loads(after.stdout)["copy.concurrency"] == {"value": "8", "origin": "--set"}


def test_repeated_settings_add_up_and_the_later_flag_wins(tierstate: Tierstate) -> None:
    done = tierstate(
        "--set",
        "copy.lag=1s",
        "--store",
        "s3://one",
        "config",
        "--set",
        "trim.delay=1s",
        "--store",
        "s3://two",
        "--json",
    )
    shown = {key: row["value"] for key, row in json.loads(done.stdout).items()}
    assert (shown["copy.lag"], shown["trim.delay"], shown["store.url"]) == ("1s", "1s", "s3://two")


def test_config_shows_the_origin_and_hides_secrets(tierstate: Tierstate, tmp_path: Path) -> None:
    (tmp_path / "tierstate.toml").write_text('[store]\nsecret_access_key = { env = "KEY" }\n[copy]\nlag = "90s"\n')
    done = tierstate("config", KEY="hunter2", TIERSTATE_CACHE__DISK="1GiB")
    assert "hunter2" not in done.stdout
    lines = {line.split()[0]: line.split(maxsplit=1)[1] for line in done.stdout.splitlines()}
    assert re.fullmatch(r"\(hidden\) +tierstate\.toml", lines["store.secret_access_key"])
    assert re.fullmatch(r"90s +tierstate\.toml", lines["copy.lag"])
    assert re.fullmatch(r"1GiB +environment TIERSTATE_CACHE__DISK", lines["cache.disk"])


def test_wrong_settings_are_all_listed_with_exit_code_2_and_no_trace(tierstate: Tierstate) -> None:
    done = tierstate("config", "--set", "copy.lga=1", "--set", "trim.delay=soon")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("tierstate: settings are wrong:\n")
    assert "did you mean copy.lag?" in done.stderr
    assert "trim.delay: not a duration" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("args", "hint"),
    [
        (["conifg"], "did you mean config?"),
        (["config", "--nope"], "--nope"),
        (["--timeout", "soon", "config"], "duration"),
    ],
)
def test_wrong_usage_is_exit_code_2_with_a_hint(args: list[str], hint: str, tierstate: Tierstate) -> None:
    done = tierstate(*args)
    assert done.returncode == 2
    assert hint in done.stderr


def test_the_version(tierstate: Tierstate) -> None:
    for args in (["--version"], ["config", "--version"]):
        done = tierstate(*args)
        assert done.returncode == 0
        assert re.fullmatch(r"tierstate [0-9.]+\n", done.stdout)


@pytest.mark.parametrize("args", [["config"], ["config", "--json"], ["--help"], ["--version"]])
def test_a_closed_pipe_ends_quietly(args: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tierstate.cli.main", *args]
    read, write = os.pipe()
    os.close(read)  # the pipe has no reader from the start
    done = subprocess.run(
        command, cwd=tmp_path, env=clean_environment(), stdout=write, stderr=subprocess.PIPE, text=True, timeout=60
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("args", [["--help"], ["dump-log", "LOG"], ["dump-log", "LOG", "--json"]])
def test_a_full_disk_below_stdout_is_reported_and_is_no_bug(args: list[str]) -> None:
    log = str(golden_folder("transactions").path)
    command = [sys.executable, "-m", "tierstate.cli.main", *(log if word == "LOG" else word for word in args)]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, env=clean_environment(), stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 3
    assert "stdout cannot be written. reason=No space left on device" in done.stderr


def test_a_command_that_a_shell_started_in_the_background_takes_sigint_and_its_timeout() -> None:
    waits = broken("print('up', flush=True); __import__('time').sleep(60)", entry="main.main()")
    for flags, send, code in (([], True, 130), (["--timeout", "1s"], False, 3)):
        command = [*waits, "config", *flags]
        with subprocess.Popen(
            command, env=clean_environment(), stdout=subprocess.PIPE, text=True, preexec_fn=ignore_interrupts
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            if send:
                process.send_signal(signal.SIGINT)
            assert process.wait(30) == code


def ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def test_an_interrupt_that_a_callback_of_python_swallows_comes_again_and_shows_no_trace() -> None:
    code = """
import signal, sys, time, weakref
from tierstate.cli.main import interrupt_again
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.unraisablehook = interrupt_again
class Module: pass
def let_go(reference): raise KeyboardInterrupt
module = Module()
reference = weakref.ref(module, let_go)
try:
    del module
    time.sleep(20)
    print("swallowed")
except KeyboardInterrupt:
    print("came again")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("came again\n", "")


def test_a_closed_pipe_hides_no_finding() -> None:
    read, write = os.pipe()
    os.close(read)
    command = broken("sys.stdout.write('data'); raise Difference('views differ')")
    done = subprocess.run(command, env=clean_environment(), stdout=write, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "tierstate: views differ\n")


def broken(error: str, entry: str = "sys.exit(main.run(['config']))") -> list[str]:
    """Return a program whose `config` command fails with ``error``; ``entry`` calls it."""
    code = (
        "import sys, click, signal, os\n"
        "from tierstate.cli import main, setup\n"
        "from tierstate.state.errors import *\n"
        "@click.command('config')\n"
        f"def command():\n    {error}\n"
        "setup.config = command\n"
        f"{entry}\n"
    )
    return [sys.executable, "-c", code]


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        ("raise Difference('views differ', at=7)", 1, "tierstate: views differ. at=7\n"),
        (
            "raise CorruptData('batch CRC does not match', file='a.log')",
            4,
            "tierstate: batch CRC does not match. file=a.log\n",
        ),
        ("raise Fenced('another agent leads')", 5, "tierstate: another agent leads\n"),
        ("os.kill(os.getpid(), signal.SIGINT); signal.pause()", 130, "\n"),
        ("raise SystemExit(7)", 7, ""),
    ],
)
def test_an_error_is_one_line_and_a_code(error: str, code: int, said: str) -> None:
    done = subprocess.run(broken(error), env=clean_environment(), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.strip()) == (code, said.strip())


def test_with_json_an_error_is_one_object_on_stderr(tierstate: Tierstate) -> None:
    done = tierstate("dump-log", "nowhere", "--json")
    assert (done.returncode, done.stdout) == (2, "")
    document = json.loads(done.stderr)
    assert document == {
        "error": "InvalidRequest",
        "message": "no such file or folder. path=nowhere",
        "facts": {"path": "nowhere"},
        "exit_code": 2,
    }


def test_an_unexpected_error_is_called_a_bug_and_traced_only_on_demand() -> None:
    command = broken("raise ZeroDivisionError('oh')")
    plain = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, timeout=60)
    debug = subprocess.run(
        command, env=clean_environment(TIERSTATE_DEBUG="1"), capture_output=True, text=True, timeout=60
    )
    assert (plain.returncode, debug.returncode) == (70, 70)
    assert "this is a bug in tierstate: ZeroDivisionError: oh" in plain.stderr
    assert "Traceback" not in plain.stderr
    assert "Traceback" in debug.stderr


@pytest.mark.parametrize(("kind", "code"), [("EACCES", 2), ("EROFS", 2), ("ENOTDIR", 2), ("EBADF", 70)])
def test_a_place_that_the_user_may_not_use_is_a_sentence_and_no_bug(kind: str, code: int) -> None:
    command = broken(f"import errno; raise OSError(errno.{kind}, 'it is so', '/var/lib/place')")
    done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == code
    assert ("/var/lib/place: it is so: give this user access" in done.stderr) is (code == 2)


def test_a_command_that_needs_a_setting_says_how_to_give_it(capsys: pytest.CaptureFixture[str]) -> None:
    from tierstate.state.errors import InvalidSettings

    with pytest.raises(InvalidSettings, match="--bootstrap-server"):
        Context(overrides=("copy.lag=1s",)).settings_with("kafka.bootstrap.servers")


def test_sandbox_status_without_a_sandbox_is_unavailable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sandbox", "status", "--dir", str(tmp_path)]) == 3
    assert "no sandbox here" in capsys.readouterr().err


def test_sandbox_down_without_a_sandbox_does_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sandbox", "down", "--dir", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"folder": str(tmp_path), "stopped": False}


@pytest.mark.kafka
def test_a_sandbox_comes_up_answers_and_goes_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--dir", str(tmp_path / "sandbox"), "--json"]
    try:
        assert run(["sandbox", "up", *where]) == 0
        up = json.loads(capsys.readouterr().out)
        assert up["brokers"][0]["address"] == up["bootstrap_servers"]
        assert run(["sandbox", "status", *where]) == 0
        assert json.loads(capsys.readouterr().out)["brokers"][0]["answers"] is True
        assert run(["sandbox", "up", *where]) == 2
    finally:
        assert run(["sandbox", "down", *where]) == 0
    assert run(["sandbox", "status", *where]) == 3


def test_a_command_without_the_extra_that_it_needs_names_the_line_for_pip(tmp_path: Path) -> None:
    code = (
        "import sys\nsys.modules['numba'] = None\nfrom tierstate.cli.main import run\n"
        "sys.exit(run(['consume', 't', '--bootstrap-server', '127.0.0.1:1', '--store', 'file:///tmp', '--json']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert json.loads(done.stderr)["error"] == "MissingExtra"
    assert "needs the extra [columns] of the wheel that `make wheel` builds: docs/install.md" in done.stderr
