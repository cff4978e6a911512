"""Load every kernel on import, for a gateway, and for a server from which other processes are forked."""

from __future__ import annotations

from .warm_kernels import load_all

load_all()
