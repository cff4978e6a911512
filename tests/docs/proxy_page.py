"""The tables of `docs/proxy.md`, generated from code and from the last run of all clients.

python -m tests.docs.proxy_page            # print what no longer holds
python -m tests.docs.proxy_page --write    # put it right
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.docs.generated import table, with_parts
from tierstate.proxy.apis import APIS

PAGE = Path(__file__).parents[2] / "docs" / "proxy.md"
RESULTS = Path(__file__).parents[1] / "proxy" / "clients.json"


def parts() -> dict[str, str]:
    """Return the tables: requests with the same treatment are one line, in the order of their keys."""
    requests: dict[tuple[str, bool], list[str]] = {}
    for api in APIS.values():
        name = f"`{api.name}` ({int(api.key)}) {api.oldest}-{api.newest}"
        requests.setdefault((api.done, api.changes), []).append(name)
    rows = [(", ".join(names), done, "not offered" if changes else "") for (done, changes), names in requests.items()]
    clients: dict[tuple[str, str], list[str]] = {}
    for name, read in json.loads(RESULTS.read_text()).items():
        named = name if read["version"] in name else f"{name} {read['version']}"
        clients.setdefault((", ".join(read["ways"]), read["date"]), []).append(named)
    return {
        "apis": table(("request (key) versions", "what is done", "when read-only"), rows),
        "clients": table(
            ("clients", "read from", "tested"),
            [(", ".join(names), ways, date) for (ways, date), names in clients.items()],
        ),
    }


if __name__ == "__main__":
    text = PAGE.read_text()
    made = with_parts(text, parts())
    if "--write" in sys.argv:
        PAGE.write_text(made)
    elif made != text:
        sys.exit(f"{PAGE.name} is not what the code says: python -m tests.docs.proxy_page --write")
