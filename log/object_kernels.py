"""Create hundreds of Python objects in compiled code: a message for each row of a block (decision 0087).

The kernel calls CPython's API through numba's internals. It earns that risk: without it, `consume(1000)` at 1 KB falls
from 0.83x to 0.74x of confluent_kafka's records a CPU second, below the 0.8x that 0087 requires; on a host under a load
of 30, from 0.56x to 0.49x. The kernel keeps the GIL, because it creates objects. Each object replaces a None in a list
that only this module uses.
"""

from __future__ import annotations

import ctypes
from typing import Any, Generic, TypeVar

from numba.core import cgutils, types

from .lazy_kernel import intrinsic, kernel
from .record_parser import OK, SHORT

_cgutils: Any = cgutils
_ir = _cgutils.ir
_POINTER, _LONG = _ir.IntType(8).as_pointer(), _ir.IntType(64)
_PLACES: Any = types.Tuple([types.int64, types.int64])  # type: ignore[no-untyped-call]
Made = TypeVar("Made")


@intrinsic
def _put_row(typing: Any, target: Any, index: Any, kind: Any, shared: Any, number: Any, places: Any) -> Any:
    """Put a new instance with a shared object and a number into a list. Returns 1, or 0 without memory for it."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target, index, kind, shared, number, places = args
        python = context.get_python_api(builder)
        allocated = _ir.FunctionType(python.pyobj, [_POINTER, _LONG])
        allocate = _cgutils.get_or_insert_function(builder.module, allocated, "PyType_GenericAlloc")
        forgotten = _ir.FunctionType(_ir.VoidType(), [python.pyobj])
        forget = _cgutils.get_or_insert_function(builder.module, forgotten, "PyObject_GC_UnTrack")
        instance = builder.call(allocate, [builder.inttoptr(kind, _POINTER), _LONG(0)])
        numbered = python.long_from_longlong(number)
        failed = builder.or_(_cgutils.is_null(builder, instance), _cgutils.is_null(builder, numbered))
        with builder.if_else(failed) as (no, yes):
            with no:
                python.decref(instance)  # does nothing for null
                python.decref(numbered)
                python.err_clear()
            with yes:
                builder.call(forget, [instance])
                common = builder.inttoptr(shared, python.pyobj)
                python.incref(common)
                for nth, held in enumerate((common, numbered)):
                    slot = builder.add(builder.ptrtoint(instance, _LONG), builder.extract_value(places, nth))
                    builder.store(held, builder.inttoptr(slot, python.pyobj.as_pointer()))
                python.list_setitem(builder.inttoptr(target, python.pyobj), index, instance)
        return builder.zext(builder.not_(failed), _LONG)

    return types.int64(*[types.int64] * 5, _PLACES), build


@kernel("int64(int64, int64, int64, UniTuple(int64, 2), int64, int64)", nogil=False)
def _fill_rows(target: int, kind: int, shared: int, places: Any, first: int, count: int) -> Any:
    for r in range(count):
        if not _put_row(target, r, kind, shared, first + r, places):
            return SHORT
    return OK


class Rows(Generic[Made]):
    """Creates instances of a class with two slots and no ``__init__``: an object that all share, and a row's number.

    Python's garbage collector does not track the instances. So the object that they share must not refer to them: such
    a cycle is never freed. Tracked instances would make the collector visit all live objects more often.
    """

    def __init__(self, kind: type[Made], shared: str, number: str) -> None:
        self._kind, self._places = kind, (_place(kind, shared), _place(kind, number))

    def made(self, shared: object, first: int, count: int) -> list[Made]:
        """Return the instances of the rows ``first`` to ``first + count - 1``."""
        rows: list[Any] = [None] * count
        if _fill_rows(id(rows), id(self._kind), id(shared), self._places, first, count) != OK:
            raise MemoryError
        return rows


def _place(kind: type[Any], slot: str) -> int:
    """Return the byte offset of a slot in an instance: where a new instance has the slot's value."""
    made, mark = kind(), object()
    setattr(made, slot, mark)
    words = (ctypes.c_int64 * (kind.__basicsize__ // 8)).from_address(id(made))
    return 8 * list(words).index(id(mark))
