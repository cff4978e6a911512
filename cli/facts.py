"""``tierstate facts``."""

from __future__ import annotations

import json

from ..state.keys import partition_prefix
from .context import Context
from .flags import declare
from .parameter_types import TopicArgument


@declare("facts user_events:0 --json | jq .fact", topic="[T[:P]]")
def command(context: Context, topic: TopicArgument | None) -> None:
    """The tier-state topic as it stands: position, key, decoded fact. With --json one object a line."""
    from ..app.opening.partitions import partitions_of
    from ..schemas.codec import decode_fact, fact_to_json

    prefixes, partitions = None, None
    with context.connected() as connection:
        if topic is not None:
            partitions = partitions_of(connection.broker.control, topic.topic, topic.partition)
            prefixes = tuple(partition_prefix(each) for each in partitions)
        for number, entry in connection.view(partitions).store.entries():
            if prefixes is not None and not entry.key.startswith(prefixes):
                continue
            fact = fact_to_json(decode_fact(entry.key, entry.value or b""))
            if context.as_json:
                context.output.item({"tier_partition": number, "position": entry.position, "key": entry.key, **fact})
            else:
                content = {name: value for name, value in fact.items() if name not in ("fact", "partition")}
                shown = json.dumps(content, ensure_ascii=False)
                context.output.line(f"{number}/{entry.position}  {entry.key}  {fact['fact']}  {shown}")
