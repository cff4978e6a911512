"""Compile, load and cache kernels, and give them access to memory: bytes at an address, in Kafka's byte order.

numba's cache notices changes by file, so a hash of all kernels' files names their folder (`kernel_folder.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ClassVar, cast

import numba
import numba.extending
from numba.core import cgutils, types

from .kernel_folder import kernel_folder

FOLDER = kernel_folder()
"""The folder that compiled kernels are kept in; if empty, every process compiles for itself."""
_config: Any = numba.config
_OPT = _config._OptLevel(1)
"""Compiles in half the time of numba's default 3, to code that is no slower here."""

Compiled = Callable[..., Any]


class Kernel:
    """A compiled function of one signature. Its first call loads it from `FOLDER`, or compiles it."""

    every: ClassVar[list[Kernel]] = []
    _lock = threading.Lock()

    def __init__(self, function: Compiled, signature: Any, nogil: bool) -> None:
        self._function, self._signature, self._nogil = function, signature, nogil
        self._compiled: Any = None
        self.every.append(self)

    def __call__(self, *args: Any) -> Any:
        return (self._compiled or self.load())(*args)

    @property
    def was_cold(self) -> bool:
        """Return whether this process compiled the kernel, instead of loading it from the folder."""
        return self._compiled is not None and bool(self._compiled.stats.cache_misses)

    def load(self) -> Any:
        """Return the compiled function. numba's settings are restored, because the caller may use numba, too."""
        with self._lock:
            if self._compiled is None:
                before = _config.CACHE_DIR, _config.OPT
                _config.CACHE_DIR, _config.OPT = FOLDER, _OPT
                try:
                    decorate = numba.njit(self._signature, cache=bool(FOLDER), nogil=self._nogil)
                    self._compiled = decorate(self._function)
                finally:
                    _config.CACHE_DIR, _config.OPT = before
        return self._compiled


def kernel(signature: Any, *, nogil: bool = True) -> Callable[[Compiled], Kernel]:
    """Make a function a `Kernel`. ``signature`` is numba's, as text or as types; ``nogil`` lets other threads run."""
    return lambda function: Kernel(function, signature, nogil)


def callee(function: Compiled) -> Compiled:
    """Make a function callable by kernels. It is compiled together with them."""
    return cast(Compiled, numba.njit(nogil=True)(function))


def inlined(function: Compiled) -> Compiled:
    """Make a function callable by kernels, inlined at each call: faster, but slower to compile."""
    return cast(Compiled, numba.njit(nogil=True, forceinline=True)(function))


def compiled_here() -> bool:
    """Return whether this process compiled a kernel, instead of loading all of them."""
    return any(each.was_cold for each in Kernel.every)


intrinsic = cast(Callable[[Compiled], Compiled], numba.extending.intrinsic)
_cgutils: Any = cgutils
_ir = _cgutils.ir
_POINTER = _ir.IntType(8).as_pointer()


@intrinsic
def byte_at(typing: Any, address: Any) -> Any:
    """Return the byte at an address."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.zext(builder.load(builder.inttoptr(args[0], _POINTER)), _ir.IntType(64))

    return types.int64(types.int64), build


def _big_endian(bits: int, signed: bool) -> Any:
    def load(typing: Any, address: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], _ir.IntType(bits).as_pointer())
            value = builder.bswap(builder.load(pointer, align=1))
            if bits == 64:
                return value
            return (builder.sext if signed else builder.zext)(value, _ir.IntType(64))

        return types.int64(types.int64), build

    return intrinsic(load)


int16_at = _big_endian(16, True)
int32_at = _big_endian(32, True)
uint32_at = _big_endian(32, False)
int64_at = _big_endian(64, True)


@intrinsic
def word_at(typing: Any, address: Any) -> Any:
    """Return eight bytes of memory, the first one lowest (little-endian hosts only, as Arrow's buffers are)."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], _ir.IntType(64).as_pointer()), align=1)

    return types.uint64(types.int64), build


@intrinsic
def copy_bytes(typing: Any, target: Any, source: Any, size: Any) -> Any:
    """Copy exactly ``size`` bytes with memcpy."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to, source = (builder.inttoptr(arg, _POINTER) for arg in args[:2])
        _cgutils.raw_memcpy(builder, to, source, args[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), build


def _big_endian_store(bits: int) -> Any:
    def store(typing: Any, address: Any, value: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = builder.trunc(args[1], _ir.IntType(bits)) if bits < 64 else args[1]
            value = builder.bswap(value) if bits > 8 else value
            builder.store(value, builder.inttoptr(args[0], _ir.IntType(bits).as_pointer()), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), build

    return intrinsic(store)


put8, put32, put64 = _big_endian_store(8), _big_endian_store(32), _big_endian_store(64)
