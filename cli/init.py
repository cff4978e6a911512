"""``tierstate init``."""

from __future__ import annotations

import click

from .context import Context
from .flags import pass_context
from .opened import open_store_of, reachable, tier_topic_spec


@click.command("init", epilog="Example: tierstate init --bootstrap-server 127.0.0.1:9092 --replication-factor 1")
@click.option("--partitions", type=click.IntRange(1, 10_000), help="Partitions; fixed for the topic's life.")
@click.option("--replication-factor", type=click.IntRange(1, 100), help="Copies of each partition.")
@click.option("--dry-run", is_flag=True, help="Only show what would be created.")
@pass_context
def command(context: Context, partitions: int | None, replication_factor: int | None, dry_run: bool) -> None:
    """Create the tier-state topic, or check the one that is there; and the store's folder, where the store is one.

    Refuses a topic with a wrong configuration and says what is wrong with it. A folder that is missing later is away
    (a disk that is not mounted): nothing but this command makes it.
    """
    from ..broker.tier_topic_setup import TierTopicSpec, check_tier_topic, create_tier_topic
    from ..runtime.clock import SystemClock
    from ..state.errors import InvalidRequest

    settings = reachable(context)
    wanted = tier_topic_spec(settings)
    spec = TierTopicSpec(wanted.name, partitions or wanted.partitions, replication_factor or wanted.replication_factor)
    output = context.output
    if dry_run:
        problems = check_tier_topic(settings.kafka, spec)
        document = {"topic": spec.name, "would_create": any("does not exist" in p for p in problems), **spec.config}
        output.table(("setting", "value"), list(document.items()), document)
        return
    if settings.store.url:
        open_store_of(settings, make=True).close()
    created = create_tier_topic(settings.kafka, spec, SystemClock().now_ms())
    problems = check_tier_topic(settings.kafka, spec)
    if problems:
        raise InvalidRequest("the tier-state topic is not safe to use", topic=spec.name, problems="; ".join(problems))
    if output.as_json:
        output.document({"topic": spec.name, "created": created, "problems": problems})
    else:
        output.line(f"{spec.name}: {'created' if created else 'already there'}, checked, ready")
