"""Importing this module loads every kernel: for a server that other processes are forked from."""

from __future__ import annotations

from .compiled import load_all

load_all()
