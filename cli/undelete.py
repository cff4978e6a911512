"""``tierstate undelete``."""

from __future__ import annotations

import click

from ..rules.custody import ending, withdrawable
from ..state.errors import Fenced, InvalidRequest
from ..state.ids import TopicId
from ..state.offsets import moment
from ..state.partition_view import PartitionView
from .context import Context
from .flags import declare
from .parameter_types import TopicArgument, topic_type

AGAIN = (
    "While the topic stays away the custodian declares it missing again within minutes, and its partitions end "
    "custodian.grace (7 days unless set) after that. Restore the topic under the same id, or copy its data before then."
)


COLUMNS = ("topic", "partition", "missing_since", "remote_segments", "remote_bytes")


@declare("undelete KzQeK0bVSB6RjzJm1yCqDw --execute", execute=False)
@click.argument("topic_id", type=topic_type(), metavar="T_ID[:P]")
def command(context: Context, topic_id: TopicArgument, execute: bool) -> None:
    """Take back that a topic is missing, so that its remote tier is not deleted when custodian.grace is over.

    The topic is named by its id, as `tierstate facts` shows it: its name may belong to another topic by now.
    """
    from ..app.opening.partitions import partitions_with_facts, to_follow
    from ..app.operating.orders import take_back

    topic = TopicId(topic_id.topic)
    with context.connected() as connection:
        follower = connection.view(to_follow(topic, topic_id.partition))
        views = [follower.partition(each) for each in partitions_with_facts(follower, topic, topic_id.partition)]
        ended = [view for view in views if ending(view) is not None]
        missing = [view for view in views if withdrawable(view)]
        if ended:
            raise Fenced(
                "too late: its partitions have ended and their objects are being deleted",
                topic_id=topic,
                partitions=",".join(str(view.partition.partition) for view in ended),
            )
        if not missing:
            raise InvalidRequest("no fact says that it is missing", topic_id=topic, partitions=len(views))
        _show(context, missing, execute)
        context.output.note(AGAIN)
        if not execute:
            context.output.note("nothing was done: --execute does it")
            return
        for view in missing:
            take_back(connection, follower, view.partition, withdrawable(view))
            follower.require_fresh(follower.tier_partition(view.partition), 0)
            if ending(follower.partition(view.partition)) is not None:
                raise Fenced(
                    "too late: the partition ended at the same moment", topic=view.topic, partition=view.partition
                )


def _show(context: Context, views: list[PartitionView], execute: bool) -> None:
    rows, documents = [], []
    for view in views:
        since = max((fact.at for fact in view.missing), default=None)
        document = {
            "topic": view.topic,
            "topic_id": view.partition.topic_id,
            "partition": view.partition.partition,
            "missing_since": since,
            "remote_segments": len(view.readable),
            "remote_bytes": view.remote_bytes,
            "erases": list(withdrawable(view)),
            "executed": execute,
        }
        shown = document | {"missing_since": None if since is None else moment(since)}
        rows.append([shown[column] for column in COLUMNS])
        documents.append(document)
    context.output.table(COLUMNS, rows, documents)
