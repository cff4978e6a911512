"""Numbers of Arrow columns, and the modules that a short command must not load for them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wheels import ROOT
from tierstate.log.record_columns import numbers

PRINTING = """
import sys
from tests.log.batches import Batch, record
from tierstate.fetch.by_time import first_in_batches
from tierstate.fetch.gateway import below
from tierstate.log.decode import decode_batches
from tierstate.log.json_lines import json_lines
from tierstate.log.record_digest import RecordDigest
from tierstate.log.text_columns import FIELDS, joined, printed
data = Batch(40, [record(0, b"k", None, [(b"n", None)]), record(1, None, b"v")]).bytes
(batch,) = decode_batches(data, source="f", topic="t", partition=3)
printed([part for letter in "tpoksTh" for part in (FIELDS[letter](batch), b" ")])
list(json_lines(batch))
RecordDigest().update(batch)
assert below(batch, 41).num_rows == 1
assert first_in_batches(data, 40, 42, 0, "f")
print(sorted({"pandas", "cryptography"} & set(sys.modules)))
"""


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=9), st.integers(0, 9), st.integers(0, 9))
def test_they_are_the_columns_own_wherever_it_was_cut(values: list[int], start: int, length: int) -> None:
    column = pa.array(values, pa.int64()).slice(min(start, len(values)), length)
    assert numbers(column, np.int64).tolist() == column.to_pylist()


@pytest.mark.extended
def test_printing_digesting_and_finding_by_time_load_neither_pandas_nor_what_encrypts() -> None:
    assert importlib.util.find_spec("pandas"), "without it nothing is shown here"
    done = subprocess.run([sys.executable, "-c", PRINTING], cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
