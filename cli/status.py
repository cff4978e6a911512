"""``tierstate status``."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from typing import Any

import click

from ..rules.reasons import about_size
from ..state.errors import CorruptData, TierStateLost, UnknownTopic
from .context import Context
from .flags import declare, view_source
from .reading import gateway_client

UNITS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))


@declare("status")
@click.argument("topics", nargs=-1, metavar="[T]…")
@view_source(bucket=False)
def command(context: Context, topics: tuple[str, ...]) -> None:
    """All tiered topics, or only these, in one table, those in trouble first: sizes, bytes that wait, problems.

    Each agent is asked for its own problems; an agent that does not answer is a problem too. The console shows the
    same table. A topic without any facts is searched for in the bucket. Exit code 4 when facts of the tier-state topic
    are lost, objects are missing, or offsets are in no tier.
    """
    from ..app.looking.lacking_rights import hidden_topics
    from ..app.looking.overview import FACTS_LOST, GAP, MISSING, kafkas_topics, topics_now, worst_first
    from ..app.opening.bucket_connection import BucketConnection
    from ..app.opening.connection import Connection

    if context.gateway is not None:
        with closing(gateway_client(context)) as client:
            document = client.summaries()
    else:
        context.refuse_bucket("status")
        with context.reading() as connection:
            assert not isinstance(connection, BucketConnection)
            now = topics_now(connection) if isinstance(connection, Connection) else kafkas_topics(connection)
            document = [asdict(each) for each in worst_first(now)]
            if isinstance(connection, Connection):
                for hidden in hidden_topics(connection, {each.topic for each in now}):
                    context.output.note(hidden)
    if absent := set(topics) - {each["topic"] for each in document}:
        raise UnknownTopic("no tiered topic has this name", topic=min(absent))
    document = [each for each in document if each["topic"] in topics or not topics]
    columns = ("topic", "partitions", "remote", "local", "freed", "to copy", "waits", "trouble")
    context.output.table(columns, [_row(each) for each in document], document)
    for topic in document:
        for right in topic.get("rights_lacking") or ():
            context.output.note(f"{topic['topic']}: right lacks: {right}")
    for problem in sorted({each for topic in document for each in topic.get("backup_problems") or ()}):
        context.output.note(f"the backup of the cluster: {problem}")
    lost = [each["topic"] for each in document if FACTS_LOST in each["trouble"]]
    if lost:
        raise TierStateLost("facts are lost: tierstate describe shows what to do", topics=",".join(lost))
    incomplete = [each["topic"] for each in document if {GAP, MISSING} & {*each["trouble"]}]
    if incomplete:
        raise CorruptData("topics are incomplete: tierstate describe shows what to do", topics=",".join(incomplete))


def _row(overview: dict[str, Any]) -> tuple[str, ...]:
    problems = [*overview["trouble"], *(f"order: {each}" for each in overview["orders"])]
    count = f" ({overview['partitions_in_trouble']} partitions)" if overview["partitions_in_trouble"] > 1 else ""
    waits = overview["copy_lag_seconds"]
    return (
        overview["topic"],
        str(overview["partitions"]),
        _size(overview["remote_bytes"]),
        _size(overview["local_log_bytes"]),
        _size(overview["freed_bytes"]),
        _size(overview["copy_lag_bytes"]),
        "unknown" if waits is None else _duration(waits) if overview["copy_lag_segments"] else "-",
        "; ".join(problems) + count if problems else "-",
    )


def _size(size: int | None) -> str:
    return "unknown" if size is None else about_size(size)


def _duration(seconds: float) -> str:
    unit, size = next(((unit, size) for unit, size in UNITS if seconds >= size), UNITS[-1])
    return f"{seconds / size:.0f} {unit}"
