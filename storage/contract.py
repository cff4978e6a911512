"""The promises of every object store. Each has its reason, the cost if it is broken, a remedy, and its check.

The tests run them over every implementation, `tierstate certify` over a user's store. A check relies only on promises
before its own, so fix the first broken promise first.
"""

from __future__ import annotations

from . import contract_listings as listings
from . import contract_objects as objects
from . import contract_replacements as replacements
from . import contract_uploads as uploads
from .contract_evidence import Check, Promise

_VERSION = "use a version or kind of store that has conditional writes (If-None-Match: *)"
_CONSISTENT = "use a strongly consistent store, and no cache or asynchronous replica between it and tierstate"
_EXACT = "find the proxy, gateway or CDN that rewrites requests or answers, and talk to the store itself"


def _promise(check: Check, why: str, cost: str, remedy: str) -> Promise:
    return Promise(check.__name__.replace("_", " "), why, cost, remedy, check)


STORE_PROMISES: tuple[Promise, ...] = (
    _promise(
        objects.a_put_never_overwrites,
        "a fenced agent must not replace what a newer one wrote",
        "a paused agent that wakes up replaces a newer agent's object, and nobody is told",
        _VERSION,
    ),
    _promise(
        objects.an_object_reads_back_at_once,
        "a segment is checked and read as soon as it was written",
        "consumers get other bytes than were copied, or an error for data that is there",
        _CONSISTENT,
    ),
    _promise(
        objects.a_head_is_of_what_is_read,
        "verification and recovery compare sizes without reading objects",
        "healthy segments are reported as damaged, and damaged ones pass",
        _EXACT,
    ),
    _promise(
        objects.an_empty_object_is_an_object,
        "an object may have no bytes, and is still there",
        "an object that was written is reported as lost",
        "use a store that keeps empty objects",
    ),
    _promise(
        objects.a_missing_object_is_an_answer,
        "a lost object needs a person, a failing store needs patience",
        "a lost segment looks like an outage: readers retry for ever and nobody is paged",
        "let the credentials list the bucket: without that permission S3 answers 403 for what is missing",
    ),
    _promise(
        objects.keys_that_differ_in_case_are_two_objects,
        "topic names and segment ids differ in case",
        "segments of two topics share one name: one of them cannot be copied, or is read as the other",
        "use a case-sensitive store or file system",
    ),
    _promise(
        listings.a_new_object_is_listed_at_once,
        "verification, recovery and sweeping decide by listings",
        "recovery rebuilds the topic without the newest segments, and their records cannot be read",
        _CONSISTENT,
    ),
    _promise(
        objects.a_deleted_object_is_gone_at_once,
        "a deletion is confirmed by looking",
        "deleted data is listed or read again, and is counted and paid for as if it lived",
        _CONSISTENT,
    ),
    _promise(
        objects.a_delete_is_idempotent,
        "a deletion is repeated after every crash",
        "a deletion that a crash interrupted never ends: its bytes are paid for until a person steps in",
        _EXACT,
    ),
    _promise(
        objects.one_of_many_writers_wins,
        "checkpoints and archives have exactly one writer",
        "two agents each believe that the object is theirs: history is forked where both have written",
        _VERSION + "; its check and its write must be one atomic step",
    ),
    _promise(
        replacements.a_replacement_is_refused_when_the_object_changed,
        "`tierstate keys rotate` overwrites manifests, while agents delete segments and others rotate too",
        "a rotation brings back the manifest of a deleted segment, or undoes another one: its key may be gone by then",
        "use a version or kind of store that has conditional overwrites (If-Match on PUT), and rotate no keys before",
    ),
    _promise(
        objects.ranges_are_exact,
        "chunks and indexes are read by range",
        "reads of the remote tier fail, or fetch whole segments for every record",
        _EXACT,
    ),
    _promise(
        objects.a_range_stops_at_the_end,
        "the last chunk of an object is asked for by its longest length",
        "the end of segments cannot be read",
        _EXACT,
    ),
    _promise(
        objects.a_range_past_the_end_is_an_error,
        "an empty success would read as the end of the log",
        "a truncated segment is taken for the end of the log, and consumers skip what is missing",
        _EXACT,
    ),
    _promise(
        listings.a_listing_prefix_is_text,
        "recovery and verification list a part of the bucket by the beginning of its keys, in key order",
        "objects of a topic are overlooked, or those of another topic are taken for its own",
        _EXACT,
    ),
    _promise(
        listings.a_listing_goes_on_after_a_key,
        "long listings are resumed where they stopped",
        "resumed work begins anew every time, or leaves objects out",
        "use a store with ListObjectsV2's start-after, or its like",
    ),
    _promise(
        objects.keys_are_taken_as_they_are,
        "the fact of a segment stores the key of its objects",
        "an object lies under another name than its fact says: its records are lost to every reader",
        _EXACT,
    ),
    _promise(
        objects.long_keys_are_kept,
        "topic names have up to 249 characters, and key prefixes are long",
        "topics with long names cannot be copied: their local disks fill up",
        "use a store that takes keys of 1,000 bytes, or keep key prefixes and topic names short",
    ),
    _promise(
        objects.a_modification_time_is_the_time_of_writing,
        "what was left behind is recognised by its age",
        "uploads that still run are taken for abandoned and removed, or abandoned ones are kept and paid for",
        "synchronise the clocks (NTP) of the store and of this machine",
    ),
    _promise(
        objects.a_batch_delete_removes_all_it_names,
        "expired segments are deleted a thousand at a time",
        "data that facts call erased is still in the bucket: retention is not kept, and the bill grows",
        "let the credentials delete, remove retention locks, and use a store with DeleteObjects or its like",
    ),
    _promise(
        uploads.a_large_stream_arrives_whole,
        "segments are larger than one request",
        "copied segments are damaged, and the local copy is trimmed all the same",
        _EXACT,
    ),
    _promise(
        uploads.a_failing_stream_is_never_visible,
        "half a segment must never pass for a segment",
        "a killed agent leaves a torn segment that looks whole",
        "use a store whose multipart uploads are invisible until they are completed",
    ),
    _promise(
        uploads.nothing_unfinished_is_left,
        "parts of an upload that failed are no objects, and cost what objects cost",
        "the bill grows by parts that no listing shows",
        "let the credentials abort multipart uploads; add a lifecycle rule that aborts them after some days",
    ),
    _promise(
        uploads.a_large_put_never_overwrites,
        "a fenced agent must not replace a segment either",
        "a paused agent that wakes up replaces a segment while it is being read",
        _VERSION + ", on CompleteMultipartUpload too",
    ),
    _promise(
        listings.a_listing_is_complete_and_in_order,
        "a bucket has millions of objects, and a page has a thousand",
        "recovery forgets all that one page left out: those records cannot be read any more",
        _EXACT,
    ),
)
