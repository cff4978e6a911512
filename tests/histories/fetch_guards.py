"""The guards of agents that read logs by Fetch, by name. `guards.py` has all guards."""

from __future__ import annotations

from tests.histories import weakened
from tests.histories.guard import Guard

FETCH_GUARDS: dict[str, Guard] = {
    "a spool for each epoch": Guard(
        "what was fetched in one leader epoch is not copied in another",
        "tail.fetch_log:_begin_epoch",
        weakened.spool_kept,
        None,
        source="fetch",
    ),
    "fetched in one epoch": Guard(
        "each Fetch names the leader epoch whose lineage was asked for",
        "tail.fetch_log:FetchSpec",
        weakened.of_any_epoch,
        None,
        source="fetch",
    ),
    "fetched by topic id": Guard(
        "each Fetch names the topic id",
        "tail.fetch_log:FetchSpec",
        weakened.of_any_topic,
        None,
        source="fetch",
    ),
    "confirmed by the spool": Guard(
        "a segment is finished only while the spool still holds it, and the leader answers for its epoch",
        "tail.spool:SpooledSegment.confirm",
        weakened.nothing,
        None,
        source="fetch",
    ),
    "owned before a term": Guard(
        "a term begins only while the group confirmed a moment ago that the partition is owned",
        "tail.fetch_log:FetchLog.require_owned",
        weakened.nothing,
        None,
        source="fetch",
    ),
    "snapshots name their log": Guard(
        "a snapshot of open transactions is of the log that has its epoch before its offset",
        "tail.spool:Spool._snapshot",
        weakened.snapshot_of_any_log,
        None,
        source="fetch",
    ),
    "copied of this log": Guard(
        "a copied offset counts as far as the leader's log is the log that was copied",
        "tail.fetch_log:first_missing",
        weakened.missing_by_any_log,
        None,
        source="fetch",
    ),
    "epochs in the batches": Guard(
        "a checkpoint that begins above its log is continued by the epochs in the batches",
        "tail.fetch_log:continued_down",
        weakened.uncontinued,
        1270,
        source="fetch",
    ),
    "open where the spool begins": Guard(
        "a spool begins with the transactions that are open there",
        "tail.fetch_log:FetchLog._open_before",
        weakened.nothing_open,
        None,
        source="fetch",
    ),
    "ends behind the segment": Guard(
        "a transaction that ends behind its segment is looked for in the spool, and at the leader",
        "tail.spool:SpooledSegment.aborted_later",
        weakened.empty,
        1,
        source="fetch",
    ),
    "an end for each transaction": Guard(
        "no segment is copied before the end of each of its transactions is found",
        "tail.spool:SpooledSegment.aborted_later",
        weakened.undecided_is_committed,
        354,
        source="fetch",
    ),
}
