"""Split JSON text into the tokens that Jackson 2's reader gives to Spark's `from_json`, also if the text is broken.

If a field is wrong, `from_json` keeps the other fields and continues where Jackson stopped. So the state after an error
matters as much as the tokens of correct text. After each error the place, the token and the context are those of
``ReaderBasedJsonParser`` as Spark sets it up: single quotes, NaN and infinities are allowed, comments are not. Two
properties of it explain most of this file: it reads a name together with the beginning of its value, and it reads a
string only when its text is requested.
"""

from __future__ import annotations

import re
import unicodedata

MAX_DEPTH, MAX_NUMBER, MAX_NAME = 500, 1000, 50_000
"""Beyond these values the result depends on Jackson's limits, which are settings of the JVM."""
OBJECT, END_OBJECT, ARRAY, END_ARRAY = "{", "}", "[", "]"
NAME, STRING, INT, FLOAT, TRUE, FALSE, NULL = "name", "string", "int", "float", "true", "false", "null"
_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "/": "/", "\\": "\\", "'": "'"}
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_PLAIN_IN_APOSTROPHES = re.compile(r"[^'\\\x00-\x1f]*")
_SPACE = re.compile("[ \t\n\r]*")
_DIGITS = re.compile("[0-9]*")
_SURROGATE = re.compile("[\ud800-\udfff]")
_WORDS = {"t": ("true", TRUE), "f": ("false", FALSE), "n": ("null", NULL)}
_ERROR_TOKEN = 256
_SURELY_BUFFERED = 2000
"""The length of a text within Jackson's buffer of 4000 chars. At the end of the buffer it reads numbers differently."""


class BadJson(Exception):
    """The counterpart of the JVM's JsonParseException."""


class Undecided(Exception):
    """Raised for a text whose `from_json` result is not defined here; the message names the reason."""


class _Context:
    """A level of nesting. ``kind``: an object, an array or the root."""

    __slots__ = ("index", "kind", "name", "parent")

    def __init__(self, kind: str, parent: _Context | None) -> None:
        self.kind, self.parent = kind, parent
        self.index, self.name = -1, None  # type: int, str | None


class Tokens:
    """Reads tokens. ``token``: the current one; None before the first, after the last and after some errors."""

    def __init__(self, text: str) -> None:
        self._text, self._end, self._at = text, len(text), 0
        self.token: str | None = None
        self._following: str | None = None
        self._unread = False
        self._string = ""
        self._context = _Context("root", None)
        self._depth = 0

    @property
    def name(self) -> str | None:
        """The name of the current field; where an object or array begins, the name of the field with it."""
        context = self._context
        if self.token in (OBJECT, ARRAY) and context.parent is not None:
            return context.parent.name
        return context.name

    def text(self) -> str:
        """Return the text of a string or a number. Raises BadJson if the string is broken."""
        if self._unread:
            self._unread = False
            self._string = self._quoted('"', _PLAIN)
        return self._string

    def skip_children(self) -> None:
        """Skip to the end of the object or array that the token begins. Raises BadJson."""
        if self.token not in (OBJECT, ARRAY):
            return
        open = 1
        while open:
            token = self.next()
            if token is None:
                if self._context.kind != "root":
                    raise BadJson("the text ends")
                return
            open += (token in (OBJECT, ARRAY)) - (token in (END_OBJECT, END_ARRAY))

    def next(self) -> str | None:
        """Advance to the next token and return it. Raises BadJson."""
        if self.token == NAME:
            return self._value_of_name()
        if self._unread:
            self._unread = False
            self._quoted('"', _PLAIN)
        letter = self._after_space()
        context = self._context
        if letter == "":
            if context.kind != "root":
                raise BadJson("the text ends")
            self.token = None
            return None
        if letter in "]}":
            if context.kind != (ARRAY if letter == "]" else OBJECT) or context.parent is None:
                raise BadJson("another end is due")
            self._context, self.token = context.parent, letter
            self._depth -= 1
            return letter
        context.index += 1
        if context.kind != "root" and context.index > 0:
            if letter != ",":
                raise BadJson("a comma is due")
            letter = self._after_space()
            if letter == "":
                raise BadJson("the text ends")
        if context.kind == OBJECT:
            context.name = self._name(letter)
            self.token = NAME
            self._following = self._value(self._after_colon())
            return NAME
        token = self._value(letter)
        if token in (OBJECT, ARRAY):
            self._enter(token)
        self.token = token
        return token

    def _value_of_name(self) -> str | None:
        token, self._following = self._following, None
        if token in (OBJECT, ARRAY):
            self._enter(token)
        self.token = token
        return token

    def _enter(self, kind: str) -> None:
        self._context = _Context(kind, self._context)
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise Undecided(f"it is nested deeper than {MAX_DEPTH}")

    def _after_space(self) -> str:
        """Take and return the next letter that is not a space, or an empty text at the end."""
        self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
        if self._at >= self._end:
            return ""
        letter = self._text[self._at]
        self._at += 1
        if letter < " ":
            raise BadJson("a control character")
        if letter == "/":
            raise BadJson("a comment")
        return letter

    def _after_colon(self) -> str:
        for due in (True, False):
            letter = self._after_space()
            if letter == "":
                raise BadJson("the text ends")
            if due and letter != ":":
                raise BadJson("a colon is due")
        return letter

    def _name(self, letter: str) -> str:
        if letter == '"':
            name = self._quoted('"', _PLAIN)
        elif letter == "'":
            name = self._quoted("'", _PLAIN_IN_APOSTROPHES)
        else:
            raise BadJson("a name is due")
        if len(name) > MAX_NAME:
            raise Undecided(f"it has a name of more than {MAX_NAME} letters")
        return name

    def _value(self, letter: str) -> str:
        if letter == '"':
            self._unread = True
            return STRING
        if letter in "{[":
            return letter
        if letter in _WORDS:
            word, token = _WORDS[letter]
            self._word(word, 1)
            return token
        if letter == "-" or "0" <= letter <= "9":
            return self._number(letter)
        return self._odd(letter)

    def _odd(self, letter: str) -> str:
        match letter:
            case "'":
                self._string = self._quoted("'", _PLAIN_IN_APOSTROPHES)
                return STRING
            case "N":
                self._word("NaN", 1)
                self._string = "NaN"
                return FLOAT
            case "I":
                self._word("Infinity", 1)
                self._string = "Infinity"
                return FLOAT
            case "+":
                return self._signed("+", self._taken())
        if _begins_identifier(letter):
            self._skip_identifier(1)
        raise BadJson("a value is due")

    def _word(self, word: str, matched: int) -> None:
        """Take the rest of ``word``, and check the letter behind it."""
        while matched < len(word):
            if self._at >= self._end or self._text[self._at] != word[matched]:
                self._skip_identifier(matched)
                raise BadJson("an unknown word")
            self._at += 1
            matched += 1
        if self._at < self._end and (behind := self._text[self._at]) >= "0" and behind not in "]}":
            if _in_identifier(behind):
                self._skip_identifier(matched)
                raise BadJson("an unknown word")

    def _skip_identifier(self, length: int) -> None:
        while self._at < self._end and _in_identifier(self._text[self._at]):
            self._at += 1
            length += 1
            if length >= _ERROR_TOKEN:
                return

    def _taken(self) -> str:
        if self._at >= self._end:
            raise BadJson("the text ends")
        self._at += 1
        return self._text[self._at - 1]

    def _signed(self, sign: str, letter: str) -> str:
        """Take an infinity; at this point everything else behind a sign is wrong."""
        if letter == "I":
            letter = self._taken()
            for second, word in (("N", "INF"), ("n", "Infinity")):
                if letter == second:
                    self._word(sign + word, 3)
                    self._string = sign + "Infinity"
                    return FLOAT
        raise BadJson("a digit is due")

    def _number(self, first: str) -> str:
        text, began = self._text, self._at - 1
        if first == "-":
            letter = self._taken()
            if not "0" <= letter <= "9":
                if letter == ".":
                    raise BadJson("a digit is due")
                return self._signed("-", letter)
            first = letter
        if first == "0" and self._at < self._end and "0" <= text[self._at] <= "9":
            raise BadJson("a zero leads")
        self._at = _digits_end(text, self._at)
        token, back = INT, None if first == "0" else self._at + 1
        if self._at < self._end and text[self._at] == ".":
            token, self._at = FLOAT, self._at + 1
            self._digits_due(back)
        if self._at < self._end and text[self._at] in "eE":
            token, self._at = FLOAT, self._at + 1
            if self._at < self._end and text[self._at] in "+-":
                self._at += 1
            self._digits_due(back)
        if self._at - began >= MAX_NUMBER:
            raise Undecided(f"it has a number of {MAX_NUMBER} digits or more")
        if self._context.kind == "root" and self._at < self._end:
            self._at += 1
            if text[self._at - 1] not in " \t\r\n":
                raise BadJson("a space is due")
        self._string = text[began : self._at]
        return token

    def _digits_due(self, back: int | None) -> None:
        """Take at least one digit. ``back``: where Jackson stands after an error, which is behind the first letter that
        makes the number no integer; None: behind the letter that is no digit, as always at the end of its buffer.
        """
        end = _digits_end(self._text, self._at)
        if end == self._at:
            if self._end > _SURELY_BUFFERED:
                raise Undecided("a broken number in a long text")
            self._at = min(self._at + 1, self._end) if back is None or self._at >= self._end else back
            raise BadJson("a digit is due")
        self._at = end

    def _quoted(self, quote: str, plain: re.Pattern[str]) -> str:
        """Take a string with its closing quote and return its content."""
        parts, text = [], self._text
        while True:
            run = plain.match(text, self._at)
            assert run is not None
            parts.append(run.group())
            self._at = run.end()
            if self._at >= self._end:
                raise BadJson("the text ends")
            letter = text[self._at]
            self._at += 1
            if letter == quote:
                break
            if letter != "\\":
                raise BadJson("a control character in a string")
            parts.append(self._escaped())
        content = "".join(parts)
        return _paired(content) if len(parts) > 1 and _SURROGATE.search(content) else content

    def _escaped(self) -> str:
        letter = self._taken()
        if letter != "u":
            if letter not in _ESCAPES:
                raise BadJson("an unknown escape")
            return _ESCAPES[letter]
        code = 0
        for _ in range(4):
            digit = self._taken()
            if digit not in "0123456789abcdefABCDEF":
                raise BadJson("a hexadecimal digit is due")
            code = code << 4 | int(digit, 16)
        return chr(code)


def _digits_end(text: str, at: int) -> int:
    return _DIGITS.match(text, at).end()  # type: ignore[union-attr]


def _paired(text: str) -> str:
    """Join two surrogates that were escaped one by one to one letter; a single surrogate stays."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _begins_identifier(letter: str) -> bool:
    """Return Java's ``Character.isJavaIdentifierStart`` for a char."""
    category = unicodedata.category(letter)
    return ord(letter) <= 0xFFFF and (category[0] == "L" or category in ("Nl", "Sc", "Pc"))


def _in_identifier(letter: str) -> bool:
    """Return Java's ``Character.isJavaIdentifierPart`` for a char."""
    if ord(letter) < 0xA0 and unicodedata.category(letter) == "Cc":
        return not ("\t" <= letter <= "\r" or "\x1c" <= letter <= "\x1f")
    return _begins_identifier(letter) or (
        ord(letter) <= 0xFFFF and unicodedata.category(letter) in ("Nd", "Mc", "Mn", "Cf")
    )
