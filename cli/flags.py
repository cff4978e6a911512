"""Flags that several commands share. Global flags are accepted before and after the name of the command."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from ..state.errors import InvalidRequest, UnknownTopic
from .context import Context
from .parameter_types import DURATION, TopicArgument, partition_meant, topic_type

COMMANDS = ("consume", "describe", "digest", "export", "leases", "segments", "status", "topics")
"""Commands that can ask a gateway; any other command refuses ``--gateway``."""
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def global_options(*, hidden: bool) -> list[click.Option]:
    """Return new options for one command. ``hidden`` keeps them out of the command's help."""

    def option(*names: str, **more: Any) -> click.Option:
        return click.Option(names, expose_value=False, hidden=hidden, callback=_into_context, **more)

    return [
        option("--config", type=click.Path(path_type=Path), metavar="FILE", help="Settings file."),
        option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="One setting, as section.key=value."),
        option("--bootstrap-server", metavar="HOST:PORT", help="The Kafka cluster."),
        option("--store", metavar="URL", help="The object store, instead of [store] url."),
        option("--gateway", metavar="URL", help="Ask this gateway instead of reading the tier-state topic."),
        option("--token-file", type=click.Path(path_type=Path), metavar="FILE", help="The gateway's bearer token."),
        option("--user", metavar="NAME", help="A user for the gateway; the password is in TIERSTATE_PASSWORD."),
        option("--ca-file", type=click.Path(path_type=Path), metavar="FILE", help="Authorities of its certificate."),
        option("--cert-file", type=click.Path(path_type=Path), metavar="FILE", help="Our certificate for the gateway."),
        option("--key-file", type=click.Path(path_type=Path), metavar="FILE", help="Its key, if not in there."),
        option("--json", "as_json", is_flag=True, help="One JSON document; streams: one object a line."),
        option("--timeout", type=DURATION, metavar="DURATION", help="Give up after so long (30s, 5m)."),
        option("--quiet", is_flag=True, help="Only data and errors."),
        option("--no-color", is_flag=True, help="No colours."),
        click.Option(
            ["--version"], is_flag=True, is_eager=True, expose_value=False, hidden=hidden, callback=_version,
            help="Show the version.",
        ),
    ]  # fmt: skip


def add_global_options(command: click.Command) -> None:
    """Add the global options, hidden, to a command and its subcommands, unless they have an option of that name."""
    if not any(name == "--no-color" for param in command.params for name in param.opts):
        taken = {name for param in command.params for name in param.opts}
        command.params += [one for one in global_options(hidden=True) if not taken & set(one.opts)]
    if isinstance(command, click.Group):
        for below in command.commands.values():
            add_global_options(below)


def options(*chosen: Decorator, given: Callable[[dict[str, Any]], None] = lambda values: None) -> Decorator:
    """Return a decorator that adds click options, in this order. ``given`` may change the values of all options of the
    command, by name, before the command function gets them.
    """

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def called(*args: Any, **values: Any) -> Any:
            given(values)
            return function(*args, **values)

        command: Callable[..., Any] = called
        for option in reversed(chosen):
            command = option(command)
        return command

    return decorated


def acts(*, unasked: bool) -> Decorator:
    """Add ``--execute/--dry-run``, for every command that changes something.

    ``unasked`` is the default of ``execute``. It is True for commands that only add, and False for commands that
    destroy, rewrite or decide.
    """
    otherwise = "it is done, for it only adds" if unasked else "it is only shown"
    text = f"Do it, or only show what would be done. Without either {otherwise}."
    return click.option("--execute/--dry-run", "execute", default=unasked, help=text)


def view_source(*, bucket: bool = True) -> Decorator:
    """Add ``--source`` and ``--as-of``, which set ``[view]``. ``bucket``: the command can read without a broker."""
    sources = ["topic", "bucket", "kip405"] if bucket else ["topic", "kip405"]
    of_bucket = " bucket: no broker is asked, and only what is remote is read." if bucket else ""

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        source = click.option(
            "--source",
            type=click.Choice(sources),
            expose_value=False,
            callback=_into_view,
            help=f"Where the view comes from.{of_bucket} kip405: what Kafka tiered itself.",
        )
        as_of = click.option(
            "--as-of",
            metavar="MOMENT",
            expose_value=False,
            callback=_into_view,
            help="With --source bucket: the view of @TIME (ISO 8601, epoch ms, @-3d), or of one tier-state partition "
            "below a position, NUMBER/POSITION.",
        )
        return source(as_of(function) if bucket else function)

    return decorated


def _into_view(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.ensure_object(Context).overrides += (f"view.{param.name}={value}",)


def _into_context(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Store a global flag. A later flag replaces an earlier one, but values of ``--set`` accumulate."""
    context = ctx.ensure_object(Context)
    name = str(param.name)
    if name == "overrides":
        context.overrides += tuple(value)
    elif value not in (None, False):
        setattr(context, name, value)
        if name == "timeout":
            context.deadline.arm(value)


def _version(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value:
        from importlib.metadata import version

        click.echo(f"tierstate {version('tierstate')}")
        ctx.exit()


def declare(
    *examples: str,
    name: str = "",
    epilog: str = "",
    topic: str | None = None,
    execute: bool | None = None,
    group: click.Group | None = None,
) -> Callable[[Callable[..., Any]], click.Command]:
    """Return the decorator of a command function. Without ``name``, the first of the ``examples`` has it.

    ``topic``: the form of the first argument, as for `topic_type`, in brackets if it is optional; None: there is none.
    ``execute``: the default of `acts`; None: there is no such option. ``epilog``: is shown instead of the examples.
    """
    lines = "\n         ".join(f"tierstate {example}" for example in examples)
    shown = epilog or (f"\b\nExample: {lines}\n" if len(examples) > 1 else f"Example: {lines}")

    def decorated(function: Any) -> click.Command:
        if execute is not None:
            acts(unasked=execute)(function)
            function.__click_params__.insert(0, function.__click_params__.pop())  # it is listed last
        if topic is not None:
            form, required = topic.strip("[]") if topic.startswith("[") else topic, not topic.startswith("[")
            click.argument("topic", type=topic_type(form), required=required)(function)
        words = examples[0].split() if examples else []
        made = click.command(name or words[group is not None], epilog=shown)(_with_context(function))
        if group is not None:
            group.add_command(made)
        return made

    return decorated


def _with_context(function: Callable[..., Any]) -> Callable[..., Any]:
    """Pass the `Context` as the first argument. Raises InvalidRequest for ``--gateway`` outside of `COMMANDS`."""

    @click.pass_context
    @wraps(function)
    def called(ctx: click.Context, *args: Any, **kwargs: Any) -> Any:
        context = ctx.ensure_object(Context)
        name = ctx.command_path.removeprefix(ctx.find_root().command_path).strip()
        if context.gateway is not None and name not in COMMANDS:
            raise InvalidRequest(f"tierstate {name} asks no gateway; {', '.join(COMMANDS)} do: --gateway")
        for param in ctx.command.params:
            if isinstance(param.type, click.Path) and param.name in kwargs and kwargs[param.name] is not None:
                context.places[param.get_error_hint(ctx).strip("'")] = Path(kwargs[param.name]).absolute()
        try:
            return ctx.invoke(function, context, *args, **kwargs)
        except UnknownTopic as error:
            typed = kwargs.get("topic")
            meant = partition_meant(str(typed)) if typed == TopicArgument(str(typed), None) else None
            if meant is None:
                raise
            raise UnknownTopic(f"{error.message} (did you mean {meant.typed}?)", **error.facts) from error

    return called
