"""The entry point ``tierstate COMMAND``. It imports a command on use, and turns every error into an exit code."""

from __future__ import annotations

import errno
import importlib
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path

import click

from ..state.errors import TierstateError, Unavailable, apart
from .context import Context
from .exit_codes import BUG, DONE, INTERRUPTED, UNAVAILABLE, USAGE, exit_code
from .flags import add_global_options, global_options
from .output import checked_stdout
from .serving import DEBUG_VARIABLE, leave
from .table import BY_NAME, ENTRIES, SECTIONS

COMPLETE_VARIABLE = "_TIERSTATE_COMPLETE"
AGAIN_S = 0.05


UNUSABLE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENAMETOOLONG}
"""Errors of a file or folder that a person must resolve: choose another path, or change its permissions."""


class Commands(click.Group):
    """The click group of the commands in `table.py`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [entry.name for entry in ENTRIES]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = BY_NAME.get(cmd_name)
        if entry is None:
            return None
        command = getattr(importlib.import_module(f"{__package__}.{entry.module}"), entry.function)
        assert isinstance(command, click.Command)
        add_global_options(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # click suggests names from `self.commands`, which is empty because commands are not imported yet.
        if args and not args[0].startswith("-") and args[0] not in BY_NAME:
            import difflib

            near = difflib.get_close_matches(args[0], BY_NAME, n=1)
            ctx.fail(f"no such command: {args[0]}" + (f"; did you mean {near[0]}?" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(len(entry.name) for entry in ENTRIES)
        for section in SECTIONS:
            rows = [(entry.name.ljust(width), entry.help) for entry in ENTRIES if entry.section == section]
            if rows:
                with formatter.section(section):
                    formatter.write_dl(rows)


root = Commands(
    "tierstate",
    params=list[click.Parameter](global_options(hidden=False)),
    help="Tiered storage for any Apache Kafka cluster, without touching the broker.",
    epilog="T is a topic, T:P a partition, which is printed as Kafka writes it: orders-0 (typed, that is a topic). "
    "Flags may stand before or after the command. "
    "`tierstate COMMAND --help` shows an example.",
    no_args_is_help=True,
    subcommand_metavar="COMMAND …",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def run(args: Sequence[str], context: Context | None = None) -> int:
    """Run one command line, without the program's name, and return its exit code."""
    context = context or Context()
    try:
        code = _run(args, context)
    finally:
        context.deadline.cancel()
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _let_go_of_stdout()
    except Unavailable as error:
        _let_go_of_stdout()
        if code == DONE:
            code = exit_code(error)
            _tell(context, error, str(error), code)
    return code


def _run(args: Sequence[str], context: Context) -> int:
    try:
        # Not `root.main`: it would turn a closed pipe into exit code 1.
        with root.make_context("tierstate", list(args), obj=context) as ctx:
            from ..runtime.extras import importing

            with importing("columns", "this command"):
                root.invoke(ctx)
        context.deadline.cancel()
        return DONE
    except click.exceptions.Exit as over:
        return over.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        if not context.deadline.passed:
            return INTERRUPTED
        sys.stderr.write(context.deadline.message())
        return UNAVAILABLE
    except BrokenPipeError:
        return DONE
    except TierstateError as error:
        _tell(context, error, str(error), exit_code(error))
        _trace(error)
        return exit_code(error)
    except OSError as error:
        if error.errno not in UNUSABLE or error.filename is None:
            return _bug(context, error)
        file = Path(os.fsdecode(error.filename)).absolute()
        options = [f"{option}: " for option, place in context.places.items() if place in (file, *file.parents)]
        way_out = "give this user access, or name another place"
        _tell(context, error, f"{''.join(options[:1])}{error.filename}: {error.strerror}: {way_out}", USAGE)
        _trace(error)
        return USAGE
    except Exception as error:
        return _bug(context, error)


def _bug(context: Context, error: Exception) -> int:
    _tell(context, error, f"this is a bug in tierstate: {type(error).__name__}: {error}", BUG)
    if not _trace(error) and not context.as_json:
        sys.stderr.write(f"tierstate: run it again with {DEBUG_VARIABLE}=1 and report what it prints\n")
    return BUG


def _tell(context: Context, error: Exception, message: str, code: int) -> None:
    """Write the error on stderr, as one JSON object if ``--json`` is set or the log is JSON, else as text."""
    from ..runtime.visible import visible

    if not (context.as_json or os.environ.get("TIERSTATE_LOG") == "json"):
        sys.stderr.write(visible(f"tierstate: {message}\n"))
        return
    facts = {name: str(value) for name, value in apart(getattr(error, "facts", {})).items()}
    record = {"error": type(error).__name__, "message": message, "facts": facts, "exit_code": code}
    sys.stderr.write(visible(json.dumps(record, ensure_ascii=False) + "\n"))


def main() -> None:
    if COMPLETE_VARIABLE in os.environ:
        root.main(prog_name="tierstate")  # click's shell completion: prints and exits
    # a shell that starts this process with & makes it ignore SIGINT, but `--timeout` and services need SIGINT
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.unraisablehook = interrupt_again
    sys.stdout = checked_stdout(sys.stdout)
    context = Context(own_process=True)
    code = run(sys.argv[1:], context)
    # Everything is closed and written. A normal interpreter exit would take longer than a short command
    leave(code)


def interrupt_again(lost: sys.UnraisableHookArgs) -> None:
    """Raise a lost KeyboardInterrupt again, ``AGAIN_S`` seconds later. Python swallows an interrupt that arrives while
    an internal callback runs (the release of a module's lock). All other errors are reported as usual."""
    if lost.exc_type is KeyboardInterrupt:
        main = threading.main_thread().ident
        assert main is not None
        # a little later, because an interrupt inside this hook would be swallowed too
        again = threading.Timer(AGAIN_S, signal.pthread_kill, (main, signal.SIGINT))
        again.daemon = True
        again.start()
    else:
        sys.__unraisablehook__(lost)


def _trace(error: BaseException) -> bool:
    traced = os.environ.get(DEBUG_VARIABLE) == "1"
    if traced:
        traceback.print_exception(error)
    return traced


def _let_go_of_stdout() -> None:
    """Replace stdout by /dev/null after its reader closed (`tierstate … | head`), so that the last flush succeeds."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        pass  # stdout is closed or not a file, so Python flushes nothing into it


if __name__ == "__main__":
    main()
