"""The kernel and the code for machines without numba read headers of batches alike."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.batches import CASES, golden_folder, marker, plain_batch
from tierstate.fetch import window_batches
from tierstate.fetch.window_batches import headers_of
from tierstate.log import kernels
from tierstate.state.offsets import Offset


@contextmanager
def without_numba() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(sys.modules, kernels.__name__)
        patch.setattr(window_batches, "columns_installed", lambda: False)
        yield


def both(data: bytes, final: int) -> list[list[int]]:
    """Return the rows, which must be the same by both."""
    by_kernel: list[list[int]] = headers_of(memoryview(data), Offset(final)).tolist()
    with without_numba():
        assert headers_of(memoryview(data), Offset(final)).tolist() == by_kernel
    return by_kernel


@pytest.mark.parametrize("case", CASES)
def test_a_golden_log_has_the_same_headers_by_both(case: str) -> None:
    folder = golden_folder(case)
    data = folder.log_path(folder.base_offsets[0]).read_bytes()[: 1 << 20]
    rows = both(data, 2**63 - 1)
    assert rows
    half = rows[-1][4] // 2
    first_beyond = next(number for number, row in enumerate(rows) if row[4] >= half)
    assert both(data, half) == rows[: first_beyond + 1]


@given(st.lists(st.tuples(st.integers(0, 2**31), st.integers(0, 255)), max_size=4), st.integers(0, 70))
@settings(max_examples=300)
def test_a_damaged_window_ends_at_the_same_batch_by_both(changes: list[tuple[int, int]], cut: int) -> None:
    data = bytearray(plain_batch(0, 3) + marker(3, 7, 1) + plain_batch(9, 2) + plain_batch(11, 1))
    for at, byte in changes:
        data[at % len(data)] = byte
    both(bytes(data[: len(data) - cut]), 2**63 - 1)


@pytest.mark.parametrize(
    "second", [plain_batch(1, 2), plain_batch(2, 2), plain_batch(3, 2, attributes=7), plain_batch(3, 4, delta=2)]
)
def test_a_batch_that_contradicts_itself_or_the_one_before_ends_the_rows_of_both(second: bytes) -> None:
    assert len(both(plain_batch(0, 3) + second + plain_batch(9, 1), 2**63 - 1)) == 1


def test_a_window_of_thousands_of_batches_is_read_by_the_kernel_where_it_is_installed() -> None:
    """The kernel takes half a second to load, once; without it each batch takes half a microsecond more, every time."""
    program = (
        "import sys\nfrom tests.log.batches import plain_batch\nfrom tierstate.fetch.window_batches import headers_of\n"
        "for name in [name for name in sys.modules if name.startswith('tierstate.log.')]: del sys.modules[name]\n"
        "for count in (100, 3000):\n"
        "    data = b''.join(plain_batch(base, 1) for base in range(count))\n"
        "    print(len(headers_of(memoryview(data), 1 << 40)), 'tierstate.log.kernels' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=200)
    assert done.stdout == "100 False\n3000 True\n", done.stderr
