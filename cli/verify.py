"""``tierstate verify``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from ..state.errors import CorruptData, Difference
from .context import Context
from .flags import declare, view_source
from .parameter_types import TopicArgument

if TYPE_CHECKING:
    from ..app.looking.verification import Verification
    from ..fetch.verify import Finding


class _Level(click.IntRange):
    """The levels of this version. Level 4, which is only designed, is refused with a description of its check."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "4":
            self.fail("not in this version: level 4 (compare with the local copy)", param, ctx)
        return super().convert(value, param, ctx)


@declare("verify user_events:0 --level 2", topic="T[:P]")
@click.option("--level", type=_Level(0, 3), default=2, show_default=True, help="See above; each adds to the last.")
@view_source(bucket=False)
def command(context: Context, topic: TopicArgument, level: int) -> None:
    """Verify what the tier-state topic says of a topic or partition, and what lies behind it.

    With --source kip405: what Kafka itself tiered, where no checksum of the copy is known.

    Level 0: the view contradicts neither itself nor the broker. 1: its objects exist, and facts name every object.
    2: sizes and manifests are as described, and the archive is whole and the topic's own. 3: every byte, by checksum.
    Exit code 4 when something is corrupt or missing, 1 for any other finding. Objects that agents will delete by
    themselves are no finding.
    """
    from ..app.looking.verification import verify, verify_kafkas
    from ..app.opening.bucket_connection import BucketConnection
    from ..app.opening.connection import Connection
    from ..app.opening.partitions import partitions_of

    needed = ("kafka.bootstrap.servers", "store.url") if level >= 1 else ()
    with context.reading(*needed, brokers=True) as connection:
        assert not isinstance(connection, BucketConnection)
        if isinstance(connection, Connection):
            done = verify(connection, topic.topic, topic.partition, level)
        else:
            partitions = partitions_of(connection.control, topic.topic, topic.partition)
            done = verify_kafkas(connection, topic.topic, partitions, level)
    _print(context, topic.topic, done)
    _judge(done.findings)


def _print(context: Context, topic: str, done: Verification) -> None:
    from ..fetch.verify import Severity

    counts = Counter(each.severity for each in done.findings)
    summary: dict[str, Any] = {
        **{severity.value: counts[severity] for severity in Severity},
        **done.checked.counts(),
        "overlap_bytes": done.overlapping,
    }
    if context.as_json:
        context.output.document(
            {"topic": topic, "findings": [_row(each) for each in done.findings], "summary": summary}
        )
        return
    for finding in done.findings:
        row = [f"L{finding.level}", finding.severity, finding.partition and finding.partition.named(topic)]
        row += [finding.segment_id, finding.object, finding.what]
        context.output.line("  ".join(str(cell) for cell in row if cell is not None))
    context.output.line(", ".join(f"{value:,} {name.replace('_', ' ')}" for name, value in summary.items()))


def _row(finding: Finding) -> dict[str, Any]:
    return {
        "level": finding.level,
        "severity": finding.severity.value,
        "partition": finding.partition.partition if finding.partition else None,
        "segment_id": finding.segment_id,
        "object_key": finding.object,
        "what": finding.what,
    }


def _judge(findings: list[Finding]) -> None:
    from ..fetch.verify import Severity

    counts = Counter(each.severity for each in findings)
    if counts[Severity.CORRUPT] or counts[Severity.GAP]:
        raise CorruptData("verification failed", corrupt=counts[Severity.CORRUPT], gaps=counts[Severity.GAP])
    if counts[Severity.FINDING]:
        raise Difference("verification found something", findings=counts[Severity.FINDING])
