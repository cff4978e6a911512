"""The part of PromQL that our alerts and dashboards use, read strictly: the reader refuses everything else.

The reader also works out the type of every expression and the labels that its series can have, so that a misspelt
metric, a label that was summed away and a ``rate`` of a gauge are errors. Grammar and functions: Prometheus' own
documentation, "Querying Prometheus".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

TOKEN = re.compile(
    r"""\s*(?:
    (?P<duration>(?:\d+(?:ms|[smhdwy]))+(?![\w.]) | \$__rate_interval\b)
  | (?P<number>\d+(?:\.\d+)?(?![\w.]))
  | (?P<word>[a-zA-Z_][a-zA-Z0-9_]*)
  | (?P<text>"(?:[^"\\]|\\.)*")
  | (?P<sign>=~|!~|!=|==|>=|<=|[-+*/(){}\[\],=<>])
    )""",
    re.VERBOSE,
)
BINARY = (("or",), ("and", "unless"), ("==", "!=", ">", "<", ">=", "<="), ("+", "-"), ("*", "/"))
"""The operators, from the weakest binding to the strongest."""
SETS = ("or", "and", "unless")
RESERVED = {*SETS, "by", "on", "offset", "without", "ignoring", "bool", "group_left", "group_right"}


class Type(Enum):
    SCALAR = "scalar"
    VECTOR = "vector"
    RANGE = "range"


AGGREGATIONS: Mapping[str, tuple[Type, ...]] = {
    **dict.fromkeys(("sum", "min", "max", "count"), (Type.VECTOR,)),
    "topk": (Type.SCALAR, Type.VECTOR),
}
COUNTER_FUNCTIONS = {"rate", "increase"}
FUNCTIONS: Mapping[str, tuple[Type, ...]] = {
    **dict.fromkeys(("rate", "increase", "resets", "max_over_time", "min_over_time"), (Type.RANGE,)),
    "absent": (Type.VECTOR,),
    "histogram_quantile": (Type.SCALAR, Type.VECTOR),
}


class PromqlError(Exception):
    """Raised with the expression and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Metric:
    """The properties of one metric name; ``labels`` includes those that scraping adds."""

    labels: frozenset[str]
    counts: bool = False
    """Whether it only grows, except at restarts."""


@dataclass(frozen=True, slots=True)
class Expression:
    """``labels``: the labels of its series; ``counts``: whether they are counters."""

    type: Type
    labels: frozenset[str] = frozenset()
    counts: bool = False
    metrics: frozenset[str] = field(default=frozenset())


MetricOf = Callable[[str, Mapping[str, str]], Metric]
"""Return the metric by its name and the values of its ``=`` matchers. Raises KeyError."""


def read(text: str, metric_of: MetricOf) -> Expression:
    """Return the parsed expression. Raises PromqlError."""
    parser = _Parser(text, metric_of)
    result = parser.expression()
    if parser.next != ("end", ""):
        parser.fail(f"unexpected {parser.next[1]!r}")
    if result.type is Type.RANGE:
        parser.fail("a range is no result")
    return result


class _Parser:
    def __init__(self, text: str, metric_of: MetricOf) -> None:
        self._text, self._metric_of = text, metric_of
        self._tokens, self._at = [*self._split(re.sub(r"(?m)#.*$", "", text)), ("end", "")], 0

    def fail(self, why: str) -> None:
        raise PromqlError(f"{why} in: {' '.join(self._text.split())}")

    def _split(self, text: str) -> list[tuple[str, str]]:
        tokens, at = [], 0
        text = text.rstrip()
        while at < len(text):
            token = TOKEN.match(text, at)
            if token is None:
                raise PromqlError(f"cannot read {text[at : at + 20]!r} in: {' '.join(text.split())}")
            kind = str(token.lastgroup)
            tokens.append((kind, token[kind]))
            at = token.end()
        return tokens

    # --- tokens ------------------------------------------------------------------------------------------------------

    @property
    def next(self) -> tuple[str, str]:
        return self._tokens[self._at]

    def take(self, *wanted: str) -> str | None:
        """Take the next token if it is one of these, and return it; otherwise return None."""
        kind, value = self.next
        if kind in ("sign", "word") and value in wanted:
            self._at += 1
            return value
        return None

    def need(self, *wanted: str) -> str:
        token = self.take(*wanted)
        if token is None:
            self.fail(f"{' or '.join(wanted)} is missing before {self.next[1]!r}")
        return str(token)

    def need_kind(self, wanted: str) -> str:
        kind, value = self.next
        if kind != wanted:
            self.fail(f"a {wanted} is missing before {value!r}")
        self._at += 1
        return value

    # --- expressions -------------------------------------------------------------------------------------------------

    def expression(self, level: int = 0) -> Expression:
        if level == len(BINARY):
            return self._postfix()
        left = self.expression(level + 1)
        while sign := self.take(*BINARY[level]):
            on = frozenset(self._names()) if self.take("on") else None
            left = self._combined(sign, on, left, self.expression(level + 1))
        return left

    def _combined(self, sign: str, on: frozenset[str] | None, left: Expression, right: Expression) -> Expression:
        types = {left.type, right.type}
        if Type.RANGE in types:
            self.fail(f"{sign} of a range")
        if Type.SCALAR in types and (sign in SETS or on is not None):
            self.fail(f"{sign} of a number")
        if types == {Type.SCALAR} and sign in BINARY[2]:
            self.fail("two numbers compared")
        metrics = left.metrics | right.metrics
        if Type.SCALAR in types:
            vector = left if left.type is Type.VECTOR else right
            return replace(vector, counts=False, metrics=metrics)
        if on is not None and not on <= left.labels & right.labels:
            self.fail(f"on {sorted(on - (left.labels & right.labels))}, which a side has not")
        if on is None and left.labels != right.labels:
            self.fail(f"{sign} of {sorted(left.labels)} and {sorted(right.labels)}: nothing would match")
        labels = on if on is not None and sign not in (*SETS, *BINARY[2]) else left.labels
        return Expression(Type.VECTOR, labels, metrics=metrics)

    def _postfix(self) -> Expression:
        if self.take("("):
            operand = self.expression()
            self.need(")")
            return operand
        if self.next[0] == "number":
            self._at += 1
            return Expression(Type.SCALAR)
        word = self.need_kind("word")
        if word in AGGREGATIONS:
            return self._aggregation(word)
        if word in FUNCTIONS:
            return self._function(word)
        if word == "time":
            self.need("(")
            self.need(")")
            return Expression(Type.SCALAR)
        if word in RESERVED:
            self.fail(f"{word} where an expression begins")
        return self._selector(word)

    def _aggregation(self, name: str) -> Expression:
        by = frozenset(self._names()) if self.take("by") else frozenset()
        (*_, inner) = self._arguments(name, AGGREGATIONS[name])
        if not by <= inner.labels:
            self.fail(f"{name} by {sorted(by - inner.labels)}, which {sorted(inner.metrics)} has not")
        return replace(inner, labels=inner.labels if name == "topk" else by, counts=False)

    def _function(self, name: str) -> Expression:
        (*_, inner) = self._arguments(name, FUNCTIONS[name])
        if name in COUNTER_FUNCTIONS and not inner.counts:
            self.fail(f"{name} of what is no counter")
        if name == "histogram_quantile":
            if "le" not in inner.labels:
                self.fail("histogram_quantile without le")
            return replace(inner, type=Type.VECTOR, labels=inner.labels - {"le"}, counts=False)
        labels = frozenset[str]() if name == "absent" else inner.labels
        return Expression(Type.VECTOR, labels, metrics=inner.metrics)

    def _arguments(self, name: str, types: tuple[Type, ...]) -> list[Expression]:
        self.need("(")
        operands = [self.expression()]
        while self.take(","):
            operands.append(self.expression())
        self.need(")")
        if tuple(operand.type for operand in operands) != types:
            self.fail(f"{name} takes {[kind.value for kind in types]}, not {[kind.type.value for kind in operands]}")
        return operands

    def _selector(self, name: str) -> Expression:
        matchers: dict[str, str] = {}
        labels: set[str] = set()
        if self.take("{") and not self.take("}"):
            while True:
                labels.add(label := self.need_kind("word"))
                sign, value = self.need("=", "!=", "=~", "!~"), self.need_kind("text")[1:-1]
                if sign == "=":
                    matchers[label] = value
                if self.need(",", "}") == "}":
                    break
        metric = self._known(name, matchers)
        if not labels <= metric.labels:
            self.fail(f"{name} has no label {sorted(labels - metric.labels)}")
        kind = Type.VECTOR
        if self.take("["):
            self.need_kind("duration")
            self.need("]")
            kind = Type.RANGE
        if self.take("offset"):
            self.need_kind("duration")
        return Expression(kind, metric.labels, metric.counts, frozenset({name}))

    def _known(self, name: str, matchers: Mapping[str, str]) -> Metric:
        try:
            return self._metric_of(name, matchers)
        except KeyError:
            raise PromqlError(f"no metric {name} with {dict(matchers)} in: {' '.join(self._text.split())}") from None

    def _names(self) -> list[str]:
        self.need("(")
        names = [self.need_kind("word")]
        while self.take(","):
            names.append(self.need_kind("word"))
        self.need(")")
        return names
