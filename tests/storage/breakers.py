"""Proxies that always break exactly one promise, for every promise of `storage/contract.py` that a store can break."""

from __future__ import annotations

import email.utils
import itertools
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from urllib.parse import unquote

from .breaking_proxy import Answer, Breaker, Request, Server, error

_CONTENTS = re.compile(rb"<Contents>.*?</Contents>", re.DOTALL)
_KEY = re.compile(rb"<Key>(.*?)</Key>", re.DOTALL)


def _listed_key(entry: bytes) -> str:
    match = _KEY.search(entry)
    assert match is not None
    return unquote(match[1].decode())  # boto3 asks for encoding-type=url


def _filtered(answer: Answer, keep: Callable[[str], bool]) -> Answer:
    """Return a listing without some of its keys."""
    return replace(answer, body=_CONTENTS.sub(lambda m: m[0] if keep(_listed_key(m[0])) else b"", answer.body))


def _has_more(answer: Answer) -> bool:
    return b"<IsTruncated>true</IsTruncated>" in answer.body


def overwrites(request: Request, server: Server) -> Answer:
    return server(request.without("if-none-match") if request.is_put else request)


def refuses_conditions(request: Request, server: Server) -> Answer:
    return error(501, "NotImplemented") if "if-none-match" in request.headers else server(request)


def reads_late() -> Breaker:
    """Let a GET right after the PUT of its key find nothing."""
    fresh: set[str] = set()

    def late(request: Request, server: Server) -> Answer:
        if request.is_put:
            fresh.add(request.key)
        if request.method == "GET" and request.key in fresh:
            fresh.discard(request.key)
            return error(404, "NoSuchKey")
        return server(request)

    return late


def truncates_puts(request: Request, server: Server) -> Answer:
    return server(replace(request, body=request.body[: max(1, len(request.body) // 2)]) if request.is_put else request)


def flips_a_bit(request: Request, server: Server) -> Answer:
    answer = server(request)
    if request.method != "GET" or not request.key or request.query or not answer.body or "range" in request.headers:
        return answer
    return replace(answer, body=answer.body[:-1] + bytes([answer.body[-1] ^ 1]))


def heads_another_size(request: Request, server: Server) -> Answer:
    answer = server(request)
    if request.method == "HEAD" and answer.status == 200:
        return answer.telling("Content-Length", str(int(answer.of("Content-Length")) + 1))
    return answer


def drops_empty_objects(request: Request, server: Server) -> Answer:
    if request.is_put and not request.body:
        return Answer(200, [("ETag", '"d41d8cd98f00b204e9800998ecf8427e"')])
    return server(request)


def forbids_what_is_missing(request: Request, server: Server) -> Answer:
    answer = server(request)
    return error(403, "AccessDenied") if request.is_read and answer.status == 404 else answer


def folds_case(request: Request, server: Server) -> Answer:
    return server(replace(request, path=request.path.lower()))


def lists_late() -> Breaker:
    """Leave the newest object out of every listing."""
    newest = [""]

    def late(request: Request, server: Server) -> Answer:
        if request.is_put:
            newest[0] = request.key
        answer = server(request)
        return _filtered(answer, lambda key: key != newest[0]) if request.is_listing else answer

    return late


def deletes_late(request: Request, server: Server) -> Answer:
    if request.method == "DELETE" and request.key and not request.query:
        return Answer(204)
    return server(request)


def lists_the_deleted() -> Breaker:
    """Go on listing objects that were deleted."""
    entries: dict[str, bytes] = {}
    deleted: set[str] = set()

    def stale(request: Request, server: Server) -> Answer:
        if request.method == "DELETE" and request.key and not request.query:
            bucket = "/" + request.path.split("/")[1]
            before = server(replace(request.another("GET", _listing_of(request.key)), path=bucket))
            entries.update({_listed_key(entry): entry for entry in _CONTENTS.findall(before.body)})
            deleted.add(request.key)
        answer = server(request)
        prefix = request.query.get("prefix", "")
        if not request.is_listing:
            return answer
        ghosts = b"".join(entries[key] for key in sorted(deleted & entries.keys()) if key.startswith(prefix))
        return replace(answer, body=answer.body.replace(b"</ListBucketResult>", ghosts + b"</ListBucketResult>"))

    return stale


def _listing_of(key: str) -> dict[str, str]:
    return {"list-type": "2", "prefix": key, "encoding-type": "url"}


def errs_on_deleting_nothing(request: Request, server: Server) -> Answer:
    if request.method == "DELETE" and request.key and not request.query:
        there = server(request.another("HEAD"))
        if there.status == 404:
            return error(400, "InvalidRequest")
    return server(request)


def looks_then_writes(request: Request, server: Server) -> Answer:
    """Obey the condition, but not in one step with the write."""
    if not request.is_put or "if-none-match" not in request.headers:
        return server(request)
    if server(request.another("HEAD")).status == 200:
        return error(412, "PreconditionFailed")
    time.sleep(0.1)
    return server(request.without("if-none-match"))


def replaces_anything(request: Request, server: Server) -> Answer:
    """Ignore the condition of an overwrite. Later than the store could, or one writer might be through."""
    if request.is_put and "if-match" in request.headers:
        time.sleep(0.1)
    return server(request.without("if-match") if request.is_put else request)


def brings_back_the_deleted(request: Request, server: Server) -> Answer:
    """Treat an object that does not exist as unchanged."""
    if not request.is_put or "if-match" not in request.headers:
        return server(request)
    time.sleep(0.1)
    answer = server(request)
    return server(request.without("if-match")) if answer.status == 404 else answer


def compares_then_replaces(request: Request, server: Server) -> Answer:
    """Obey the condition, but not in one step with the write."""
    if not request.is_put or "if-match" not in request.headers:
        return server(request)
    if server(request.another("HEAD")).of("ETag") != request.headers["if-match"]:
        return error(412, "PreconditionFailed")
    time.sleep(0.1)
    return server(request.without("if-match"))


def refuses_replacements(request: Request, server: Server) -> Answer:
    return error(501, "NotImplemented") if request.is_put and "if-match" in request.headers else server(request)


def ignores_ranges(request: Request, server: Server) -> Answer:
    return server(request.without("range"))


def ranges_are_off_by_one(request: Request, server: Server) -> Answer:
    answer = server(request)
    return replace(answer, body=answer.body[1:] + answer.body[:1]) if answer.status == 206 else answer


def refuses_ranges_over_the_end(request: Request, server: Server) -> Answer:
    answer = server(request)
    byte_range = re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers.get("range", ""))
    content_range = re.fullmatch(r"bytes \d+-\d+/(\d+)", answer.of("Content-Range"))
    if byte_range and content_range and int(byte_range[2]) >= int(content_range[1]):
        return error(416, "InvalidRange")
    return answer


def reads_nothing_past_the_end(request: Request, server: Server) -> Answer:
    answer = server(request)
    return Answer(200, [("ETag", '"x"')]) if answer.status == 416 else answer


def lists_folders(request: Request, server: Server) -> Answer:
    """Let a prefix count only up to a slash."""
    answer, prefix = server(request), request.query.get("prefix", "")
    if not request.is_listing or prefix.endswith("/") or not prefix:
        return answer
    return _filtered(answer, lambda key: key.startswith(f"{prefix}/") or key == prefix)


def lists_too_late(request: Request, server: Server) -> Answer:
    """Leave out the first key after the one with which a listing goes on."""
    answer = server(request)
    if "start-after" not in request.query:
        return answer
    return replace(answer, body=_CONTENTS.sub(b"", answer.body, count=1))


def normalises_plus(request: Request, server: Server) -> Answer:
    return server(replace(request, path=request.path.replace("%2B", "%20").replace("+", "%20")))


def refuses_long_keys(request: Request, server: Server) -> Answer:
    return error(400, "KeyTooLongError") if len(request.key.encode()) > 900 else server(request)


def _with_times(answer: Answer, tell: Callable[[], float]) -> Answer:
    stamp = tell()
    if answer.of("Last-Modified"):
        answer = answer.telling("Last-Modified", email.utils.formatdate(stamp, usegmt=True))
    text = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(stamp)).encode()
    return replace(answer, body=re.sub(rb"(?<=<LastModified>)[^<]*", text, answer.body))


def clock_is_ahead(request: Request, server: Server) -> Answer:
    return _with_times(server(request), lambda: time.time() + 3600)


def clock_goes_back() -> Breaker:
    step = itertools.count(1)
    return lambda request, server: _with_times(server(request), lambda: time.time() - 2 * next(step))


def batch_deletes_nothing(request: Request, server: Server) -> Answer:
    if request.method == "POST" and "delete" in request.query:
        return Answer(200, [("Content-Type", "application/xml")], b"<DeleteResult></DeleteResult>")
    return server(request)


def forgets_the_last_part(request: Request, server: Server) -> Answer:
    if not request.is_complete:
        return server(request)
    head, _, tail = request.body.rpartition(b"<Part>")
    return server(replace(request, body=head + tail.partition(b"</Part>")[2]))


def truncates_parts(request: Request, server: Server) -> Answer:
    """Truncate only the last part of an upload: others may not be smaller."""
    if request.is_part and len(request.body) < 5 * 1024 * 1024:
        return server(replace(request, body=request.body[: len(request.body) // 2]))
    return server(request)


def completes_instead_of_aborting(request: Request, server: Server) -> Answer:
    if not request.is_abort:
        return server(request)
    upload = {"uploadId": request.query["uploadId"]}
    parts = server(request.another("GET", upload)).body
    matches = re.findall(rb"<PartNumber>(\d+)</PartNumber>.*?<ETag>(.*?)</ETag>", parts, re.DOTALL)
    body = b"".join(b"<Part><PartNumber>%b</PartNumber><ETag>%b</ETag></Part>" % each for each in matches)
    body = b"<CompleteMultipartUpload>" + body + b"</CompleteMultipartUpload>"
    server(request.another("POST", upload, body))
    return Answer(204)


def ignores_aborts(request: Request, server: Server) -> Answer:
    return Answer(204) if request.is_abort else server(request)


def overwrites_large_objects(request: Request, server: Server) -> Answer:
    return server(request.without("if-none-match") if request.is_complete else request)


def loses_the_end_of_a_page(request: Request, server: Server) -> Answer:
    answer = server(request)
    if not request.is_listing or not _has_more(answer):
        return answer
    last = _listed_key(_CONTENTS.findall(answer.body)[-1])
    return _filtered(answer, lambda key: key != last)


def loses_further_pages(request: Request, server: Server) -> Answer:
    answer = server(request)
    if not request.is_listing:
        return answer
    ended = answer.body.replace(b"<IsTruncated>true<", b"<IsTruncated>false<")
    return replace(answer, body=re.sub(rb"<NextContinuationToken>.*?</NextContinuationToken>", b"", ended))


def shuffles_pages(request: Request, server: Server) -> Answer:
    answer = server(request)
    if not request.is_listing or not _has_more(answer):
        return answer
    entries: Iterator[bytes] = iter(_CONTENTS.findall(answer.body)[::-1])
    return replace(answer, body=_CONTENTS.sub(lambda m: next(entries), answer.body))


BREAKERS: dict[str, tuple[Callable[[], Breaker], ...]] = {
    "a put never overwrites": (lambda: overwrites, lambda: refuses_conditions),
    "an object reads back at once": (reads_late, lambda: truncates_puts, lambda: flips_a_bit),
    "a head is of what is read": (lambda: heads_another_size,),
    "an empty object is an object": (lambda: drops_empty_objects,),
    "a missing object is an answer": (lambda: forbids_what_is_missing,),
    "keys that differ in case are two objects": (lambda: folds_case,),
    "a new object is listed at once": (lists_late,),
    "a deleted object is gone at once": (lambda: deletes_late, lists_the_deleted),
    "a delete is idempotent": (lambda: errs_on_deleting_nothing,),
    "one of many writers wins": (lambda: looks_then_writes,),
    "a replacement is refused when the object changed": (
        lambda: replaces_anything,
        lambda: brings_back_the_deleted,
        lambda: compares_then_replaces,
        lambda: refuses_replacements,
    ),
    "ranges are exact": (lambda: ranges_are_off_by_one, lambda: ignores_ranges),
    "a range stops at the end": (lambda: refuses_ranges_over_the_end,),
    "a range past the end is an error": (lambda: reads_nothing_past_the_end,),
    "a listing prefix is text": (lambda: lists_folders,),
    "a listing goes on after a key": (lambda: lists_too_late,),
    "keys are taken as they are": (lambda: normalises_plus,),
    "long keys are kept": (lambda: refuses_long_keys,),
    "a modification time is the time of writing": (lambda: clock_is_ahead, clock_goes_back),
    "a batch delete removes all it names": (lambda: batch_deletes_nothing,),
    "a large stream arrives whole": (lambda: forgets_the_last_part, lambda: truncates_parts),
    "a failing stream is never visible": (lambda: completes_instead_of_aborting,),
    "nothing unfinished is left": (lambda: ignores_aborts,),
    "a large put never overwrites": (lambda: overwrites_large_objects,),
    "a listing is complete and in order": (
        lambda: loses_the_end_of_a_page,
        lambda: loses_further_pages,
        lambda: shuffles_pages,
    ),
}
"""For every promise of a store, functions that make breakers: each call makes one with a memory of its own."""
