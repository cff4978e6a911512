"""Importing this module loads every kernel: for a gateway, and for a server that other processes are forked from."""

from __future__ import annotations

from .lazy_kernel import load_all

load_all()
