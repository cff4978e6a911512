"""The table of `docs/proxy.md`, generated from code.

python -m tests.docs.proxy_page            # print what no longer holds
python -m tests.docs.proxy_page --write    # put it right
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.docs.generated import table, with_parts
from tierstate.proxy.apis import APIS, Api

PAGE = Path(__file__).parents[2] / "docs" / "proxy.md"


def row(api: Api) -> tuple[str, ...]:
    refused = "not offered" if api.changes else ""
    return str(int(api.key)), f"`{api.name}`", f"{api.oldest} to {api.newest}", api.done, refused


def parts() -> dict[str, str]:
    head = ("key", "request", "versions", "what is done", "when read-only")
    return {"apis": table(head, [row(api) for api in APIS.values()])}


if __name__ == "__main__":
    text = PAGE.read_text()
    made = with_parts(text, parts())
    if "--write" in sys.argv:
        PAGE.write_text(made)
    elif made != text:
        sys.exit(f"{PAGE.name} is not what the code says: python -m tests.docs.proxy_page --write")
