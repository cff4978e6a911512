"""JSON that should not be written: objects of known and unknown fields, of right and wrong types, whole and broken."""

from __future__ import annotations

import json
from random import Random

DDL = (
    "a int, b string, c struct<x:int,y:array<int>,z:string>, d double, f float, t tinyint, s smallint, l bigint, "
    "o boolean, ts timestamp, tn timestamp_ntz, dt date, dec decimal(5,2), dx decimal(38,10), ar array<string>, "
    "st array<struct<x:int,z:string>>, aa array<array<double>>, `é` string"
)
ORDERS = (
    "id int, name string, at timestamp, tags array<string>, nested struct<a:int>, price double, f float, "
    "cents decimal(10,2), due date, paid boolean"
)
MAPS = ", m map<string,int>, ms map<string,struct<q:int,r:string>>"
NAMES = [*"a b c d f t s l o ts tn dt dec dx ar st aa é m ms x y z q r A other".split(), ""]
NUMBERS = (
    "1 -1 0 -0 127 200 255 256 -128 -129 32767 40000 2147483647 2147483648 9223372036854775807 9223372036854775808 "
    "-9223372036854775809 123456789012345678901234567890 1.0 1.5 -0.0 0.1 1e2 1E-2 1.005 999.99 999.995 1e400 1e-400 "
    "16777217 9007199254740993 9223372036854775000000 12345.678 NaN Infinity -Infinity "
    "+Infinity +INF -INF INF Inf -Inf nan true false null True tru nulll 01 - +1 .5 5. 1.e 1e 1e+ 1.5ex -01 00"
).split()
STRINGS = [
    '""', '"x"', '"1"', '"1.005"', '"true"', '"NaN"', '"+INF"', r'"\u00e9"', '"é"', r'"\ud83d\ude00"', r'"\ud83d"',
    r'"\ude00x"', '"😀"', r'"a\"b"', r'"a\nb\/"', '"a\tb"', r'"\x"', r'"\'"', "'q'", "'q\"r'", r'"\u00zz"',
    r'"\u0000"', '"unterminated', '"2020-01-01"', '"2020"', '"2020-1-2 3:4:5"', '"2020-01-01T01:02:03.123456Z"',
    '"2020-01-01T01:02:03.5"',
    '"2020-01-01T01:02:03+01:00"', '"2020-13-01"', '"2020-02-30"', '"2020-01-01T24:00:00Z"', '"1e2"', '"-5"',
    '"0001-01-01"', '"12345"', '" 2020-01-01 GMT"', '"2020-01-01T01:02:03GMT-8:30"', '"99999-12-31"', '"1."', '".5"',
]  # fmt: skip
NESTED = [
    "[]", "{}", "[1,2]", '[1,"x",null]', "[[1.5,null],[]]", '[["x"]]', '{"x":1}', '{"x":"q","y":[1,2],"z":5.5}',
    '[{"x":1},{"x":"q","z":{"k":[1.10,"é"]}}]', '[{"x":1},7]', '{"k":{"q":1,"r":"s"}}',
    '{"k":{"q":"z","r":1.50}}', '{"k":tru}', '{"x":1', "[1,2", "[1 2]", '{"x" 1}', "{x:1}", "/*c*/1", "#", "\\",
    "1\x01",
]  # fmt: skip
WHOLE = [
    b"", b" ", b"\n\t", b"null", b"[]", b"1", b'"x"', b"tru", b"{", b"}", b"\xef\xbb\xbf{}", b"\0", b'{"a":1}\0',
    b'[{"a":1}]', b'{"a":1}{"a":2}', b'{"a":1},"v":{"a":2}', b'{"a":1}}\n{"v":{"a":2}',
]  # fmt: skip
INSERTED = [
    b'"', b"'", b",", b":", b"{", b"}", b"[", b"]", b"\\", b"\xff", b"\xed\xa0\x80", b"\xe2\x82", b"\0", b"\t", b"1",
    b"e", b".", b"-", b" ", b"t", b"\xc3\xa9", b"_", b"\n",
]  # fmt: skip
SPACES = ["", "", "", "", " ", "\n", "\t ", "\r\n"]


def texts(seed: int, count: int) -> list[bytes | None]:
    """Return the same texts for the same seed."""
    chance = Random(seed)
    return [_text(chance) for _ in range(count)]


def _text(chance: Random) -> bytes | None:
    if chance.random() < 0.06:
        return chance.choice([None, *WHOLE])
    text = _space(chance) + _object(chance, 0) + chance.choice(["", "", "", " ", "garbage", "{}", ',"a":1', "\n"])
    data = text.encode()
    if chance.random() < 0.4:
        for _ in range(chance.randrange(1, 3)):
            at = chance.randrange(len(data) + 1)
            match chance.randrange(4):
                case 0:
                    data = data[:at] + data[at + 1 :]
                case 1:
                    data = data[:at] + chance.choice(INSERTED) + data[at:]
                case 2:
                    data = data[:at]
                case _:
                    data = data[:at] + chance.randbytes(1) + data[at + 1 :]
    return data


def _object(chance: Random, depth: int) -> str:
    def field() -> str:
        name, value = chance.choice(NAMES), _value(chance, depth)
        return f'{_space(chance)}"{name}"{_space(chance)}:{_space(chance)}{value}{_space(chance)}'

    return "{" + ",".join(field() for _ in range(chance.randrange(6))) + "}"


def _value(chance: Random, depth: int) -> str:
    if depth < 3 and chance.random() < 0.25:
        if chance.random() < 0.5:
            return _object(chance, depth + 1)
        return "[" + ",".join(_value(chance, depth + 1) for _ in range(chance.randrange(4))) + "]"
    return chance.choice(chance.choice([NUMBERS, STRINGS, NESTED]))


def _space(chance: Random) -> str:
    return chance.choice(SPACES)


def orders(seed: int) -> list[bytes | None]:
    """Return hundreds of whole objects, and some odd texts."""
    drawn: list[bytes | None] = []
    odd = texts(seed, 20)
    for number in range(1500):
        order = {
            "id": number,
            "name": ['é"\n', "", None, "x" * (number % 40)][number % 4],
            "at": ["2026-01-01T00:00:00Z", "2026-02-28 23:59:59.123", None][number % 3],
            "tags": [[], ["a", None], None][number % 3],
            "nested": [{"a": number}, {}, None][number % 3],
            "price": [1.5, 0.1, 3, 1e300, None][number % 5],
            "f": [0.1, 7, None][number % 3],
            "cents": [1.5, 12, "3.25", None][number % 4],
            "due": ["2028-02-29", None][number % 2],
            "paid": number % 2 == 0,
            "unknown": [{"k": [1, 2]}, "x"],
        }
        kept = {name: value for at, (name, value) in enumerate(order.items()) if (number + at + seed) % 7}
        drawn.append(json.dumps(kept, ensure_ascii=number % 2 == 0, indent=None if number % 5 else 1).encode())
        if number % 75 == 74:
            drawn.append(odd[number // 75])
    return drawn
