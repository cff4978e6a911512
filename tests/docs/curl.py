"""The part of curl that `docs/http.md` uses, for machines without it: ``python curl.py -s -i -H NAME:VALUE … URL``."""

from __future__ import annotations

import argparse
import ssl
import sys
from pathlib import Path

import httpx


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-s", "--silent", action="store_true")
    parser.add_argument("-i", "--include", action="store_true")
    parser.add_argument("-D", "--dump-header", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("-w", "--write-out", default="")
    parser.add_argument("-H", "--header", action="append", default=[])
    parser.add_argument("-X", "--request", default="GET")
    parser.add_argument("-d", "--data")
    parser.add_argument("-r", "--range")
    parser.add_argument("--cacert")
    parser.add_argument("url")
    options = parser.parse_args()
    headers = {"user-agent": "curl", "accept": "*/*"}
    for header in [Path(text[1:]).read_text() if text.startswith("@") else text for text in options.header]:
        name, _, value = header.partition(":")
        headers[name.lower()] = value.strip()
    trusted = ssl.create_default_context(cafile=options.cacert) if options.cacert else True
    if options.range:
        headers["range"] = f"bytes={options.range}"
    answer = httpx.request(
        options.request if options.data is None else "POST",
        options.url,
        content=options.data,
        headers={"accept-encoding": "identity", **headers},
        verify=trusted,
        timeout=60,
    )
    head = f"HTTP/1.1 {answer.status_code} {answer.reason_phrase}\r\n".encode()
    head += b"".join(name + b": " + value + b"\r\n" for name, value in answer.headers.raw) + b"\r\n"
    if options.dump_header:
        options.dump_header.write_bytes(head)
    if options.output:
        options.output.write_bytes(answer.content)
    shown = (head if options.include else b"") + (b"" if options.output else answer.content)
    facts = {
        "%{http_code}": str(answer.status_code),
        "%{content_type}": answer.headers.get("content-type", ""),
        "%{size_download}": str(len(answer.content)),
        "\\n": "\n",
    }
    for name, value in facts.items():
        options.write_out = options.write_out.replace(name, value)
    sys.stdout.buffer.write(shown + options.write_out.encode())


if __name__ == "__main__":
    main()
