"""``tierstate adopt``."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import click

from ..rules.reasons import about_size
from ..runtime.units import counted
from ..state.errors import CorruptData, Difference
from .context import Context
from .flags import declare
from .parameter_types import TopicArgument, topic_type
from .recover import list_texts, plan_document, show_partition

if TYPE_CHECKING:
    from ..app.operating.adopting import Adoption


@declare("adopt orders --from s3://kafka-tiered", "adopt orders --from s3://kafka-tiered --execute", execute=False)
@click.argument("partitions", nargs=-1, required=True, type=topic_type(), metavar="TOPIC[:PARTITION]...")
@click.option("--from", "url", required=True, metavar="URL", help="The store with the segments, which is only read.")
@click.option(
    "--past-holes", is_flag=True, help="Adopt what lies behind missing or damaged segments: readers meet gaps there."
)
def command(context: Context, partitions: tuple[TopicArgument, ...], url: str, past_holes: bool, execute: bool) -> None:
    """Copy segments of Aiven's plugin, or of another tierstate prefix, here: as history of their topic id.

    Each segment is read whole, and believed only if every batch is right. Nothing behind a hole is adopted. The plan is
    made of manifests alone, and shows what it takes. Killed at any point and run again, it goes on. If the cluster has
    the topic, stop every agent first. TOPIC may be a topic id. Exit code 4 when something is damaged, missing or
    contradicts something, 1 when it is left out below the log start.
    """
    from ..app.operating.adopting import open_source, plan_adoption, write_adoption

    with context.alone("adopt", execute) as (connection, lock):
        with closing(open_source(connection, url)) as source:
            wanted = [(each.topic, each.partition) for each in partitions]
            adoption = plan_adoption(connection, source, wanted, past_holes=past_holes)
            if lock is not None:
                adoption = write_adoption(connection, source, adoption, lock, past_holes=past_holes)
    _show(context, url, adoption, execute)
    if adoption.corrupt:
        raise CorruptData("not everything is adopted, or there", problems=adoption.corrupt)
    if adoption.unproven:
        raise Difference("segments below the log start are left out", segments=adoption.unproven)


def _show(context: Context, url: str, adoption: Adoption, executed: bool) -> None:
    output, recovery = context.output, adoption.recovery
    if output.as_json:
        document = plan_document(recovery, executed)
        for row, each in zip(document["partitions"], adoption.partitions, strict=True):
            row["adopted"] = row.pop("restored")
            row["adopted_before"] = len(each.proposal.readable)
            row["behind_a_hole"] = [found.segment.object_key for found in each.proposal.behind]
            row["problems"] = [{"object_key": key, "problem": text} for key, text in each.problems.items()]
        output.document({**document, "source": url, "bytes": adoption.bytes, "price_usd": round(adoption.price, 4)})
        return
    for plan, each in zip(recovery.plans, adoption.partitions, strict=True):
        show_partition(output, recovery, plan)
        list_texts(output, "  REFUSED  ", [f"{key}: {text}" for key, text in each.problems.items()])
        texts = [f"{found.segment.offsets} {found.segment.segment_id}" for found in each.proposal.behind]
        list_texts(output, "  behind a hole", texts)
    list_texts(output, "DAMAGED", [f"{each.key}: {each.problem}" for each in recovery.bucket.damaged])
    size = about_size(adoption.bytes)
    if executed:
        output.note(f"{counted(len(adoption.new), 'segment')}, {size}, copied and proven")
    else:
        price = f"requests about ${adoption.price:.2f} at S3's prices, transfer out of a region extra"
        output.note(f"{size} to be read whole and copied; {price}: nothing was done, --execute does it")
