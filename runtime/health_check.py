"""The health check of a container: queries the management port of its process. Standard library only.

    python -m tierstate.runtime.health_check      # exits with 0 if /healthz answers 200, otherwise with 1

The process and its health check have the same environment and settings file: `management.listen` is read from there.
If it is not set, the check queries the default port of every kind of tierstate process. The check does not know the
flags of the process' command line: set ``TIERSTATE_MANAGEMENT__LISTEN`` instead.
"""

from __future__ import annotations

import http.client
import os
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

DEFAULTS = ("127.0.0.1:9404", "127.0.0.1:9405", "127.0.0.1:9406", "127.0.0.1:9407")
"""The default ports of an agent, a gateway, a proxy and a table follower: `settings.Management`."""
SEARCHED = ("tierstate.toml", "/etc/tierstate/tierstate.toml")
TIMEOUT_S = 3.0


def addresses(environment: Mapping[str, str], searched: Sequence[str] = SEARCHED) -> Sequence[str]:
    """Return the addresses to query: from the variable, else from the settings file, else `DEFAULTS`."""
    listen = environment.get("TIERSTATE_MANAGEMENT__LISTEN")
    if listen:
        return (listen,)
    file = environment.get("TIERSTATE_CONFIG") or next((path for path in searched if os.path.exists(path)), None)
    settings = tomllib.loads(Path(file).read_text("utf-8")) if file else {}
    listen = settings.get("management", {}).get("listen")
    return (str(listen),) if listen else DEFAULTS


def is_healthy(address: str) -> bool:
    """Return whether /healthz answers 200 at this address."""
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def main() -> int:
    return 0 if any(is_healthy(address) for address in addresses(os.environ)) else 1


if __name__ == "__main__":
    sys.exit(main())
