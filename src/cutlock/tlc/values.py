"""TLA+ values, as TLC prints them and as Python holds them.

| TLA+ | Python |
| --- | --- |
| integer, string, TRUE and FALSE | `int`, `str`, `bool` |
| model value | `ModelValue` |
| tuple, sequence, function on 1..n | `tuple` |
| set, `a..b` | `frozenset` |
| record, any other function | `Function` |

All are immutable and hashable. TLC prints the empty function as `<<>>`, so it is `()`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias, cast

from cutlock.errors import ToolError

__all__ = [
    "IDENTIFIER",
    "Function",
    "ModelValue",
    "Value",
    "function",
    "parse_value",
    "record",
    "to_tla",
]

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<string>"(?:[^"\\]|\\.)*")
      | (?P<integer>-?[0-9]+(?![A-Za-z0-9_]))
      | (?P<name>[A-Za-z0-9_]*[A-Za-z_][A-Za-z0-9_]*)
      | (?P<symbol><<|>>|\|->|:>|@@|\.\.|[\[\]{}(),])
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_ESCAPED = str.maketrans({meant: f"\\{letter}" for letter, meant in _ESCAPES.items()})


@dataclass(frozen=True)
class ModelValue:
    """A value that equals nothing but itself, like `p1` in `Processes = {p1, p2}`."""

    name: str


class Function(Mapping["Value", "Value"]):
    """A record or a function, immutable and hashable; use `function` to make one."""

    __slots__ = ("_hash", "_items")

    def __init__(self, items: Mapping[Value, Value] | Iterable[tuple[Value, Value]]) -> None:
        self._items = dict(items)
        self._hash = hash(frozenset(self._items.items()))

    def __getitem__(self, key: Value) -> Value:
        return self._items[key]

    def __iter__(self) -> Iterator[Value]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Function) and self._items == other._items

    def __reduce__(self) -> tuple[type[Function], tuple[dict[Value, Value]]]:
        # Strings hash differently in another process, so the hash is made anew there.
        return Function, (self._items,)

    def __repr__(self) -> str:
        return f"Function({self._items!r})"


Value: TypeAlias = (
    int | str | bool | ModelValue | tuple["Value", ...] | frozenset["Value"] | Function
)


def function(items: Mapping[Value, Value]) -> Value:
    """The value of a function: a tuple if its domain is 1..n, else a `Function`."""
    if all(type(key) is int for key in items) and set(items) == set(range(1, len(items) + 1)):
        return tuple(items[number] for number in range(1, len(items) + 1))
    return Function(items)


def record(**fields: Value) -> Function:
    """A record, or a function of strings, which TLC writes alike."""
    return Function(cast(Mapping[Value, Value], fields))


@lru_cache(maxsize=1 << 17)
def parse_value(text: str) -> Value:
    """Read a value that TLC printed.

    Raises:
        ToolError: `text` is not one whole value; says where.
    """
    parser = _Parser(text)
    value = parser.value()
    parser.expect_end()
    return value


def to_tla(value: Value) -> str:
    """Write a value so that TLC reads it and `parse_value` gives it back.

    Equal values give equal texts. Functions need `EXTENDS TLC`, negative numbers `Integers`.

    Raises:
        ValueError: a string has characters that a TLA+ module cannot hold.
        TypeError: not a value.
    """
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value)
        case str():
            return _quoted(value)
        case ModelValue(name):
            return name
        case tuple():
            return f"<<{', '.join(map(to_tla, value))}>>"
        case frozenset():
            return f"{{{', '.join(sorted(map(to_tla, value)))}}}"
        case Function():
            return _function_text(value)
    raise TypeError(f"{value!r} of type {type(value).__name__} is not a TLA+ value")


def _quoted(text: str) -> str:
    written = text.translate(_ESCAPED)
    if not (written.isascii() and written.isprintable()):
        raise ValueError(f"{text!r} has characters that a TLA+ string cannot hold; use plain ASCII")
    return f'"{written}"'


def _function_text(value: Function) -> str:
    if not value:
        return "<<>>"
    if all(isinstance(key, str) and IDENTIFIER.fullmatch(key) for key in value):
        fields = sorted(f"{key} |-> {to_tla(image)}" for key, image in value.items())
        return f"[{', '.join(fields)}]"
    pairs = sorted(f"{to_tla(key)} :> {to_tla(image)}" for key, image in value.items())
    return f"({' @@ '.join(pairs)})"


class _Parser:
    """Recursive descent over the tokens of one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._tokenize(text)
        self._next = 0

    def value(self) -> Value:
        kind, text, position = self._take()
        match kind, text:
            case "string", _:
                return self._unescaped(text[1:-1], position)
            case "integer", _:
                return self._interval(int(text)) if self._accept("..") else int(text)
            case "name", "TRUE" | "FALSE":
                return text == "TRUE"
            case "name", _:
                return ModelValue(text)
            case "symbol", "<<":
                return tuple(self._list(">>"))
            case "symbol", "{":
                return frozenset(self._list("}"))
            case "symbol", "[":
                return self._record()
            case "symbol", "(":
                return self._pairs()
        raise self._error("a value", text, position)

    def expect_end(self) -> None:
        kind, text, position = self._take()
        if kind != "end":
            raise self._error("the end", text, position)

    def _interval(self, low: int) -> Value:
        kind, text, position = self._take()
        if kind != "integer":
            raise self._error("an integer", text, position)
        return frozenset(range(low, int(text) + 1))

    def _list(self, closing: str) -> Iterator[Value]:
        if self._accept(closing):
            return
        yield self.value()
        while not self._accept(closing):
            self._expect(",")
            yield self.value()

    def _record(self) -> Value:
        fields: dict[Value, Value] = {}
        while True:
            kind, name, position = self._take()
            if kind != "name" or name in fields:
                raise self._error("the name of a new field", name, position)
            self._expect("|->")
            fields[name] = self.value()
            if self._accept("]"):
                return function(fields)
            self._expect(",")

    def _pairs(self) -> Value:
        items: dict[Value, Value] = {}
        while True:
            position = self._tokens[self._next][2]
            key = self.value()
            if key in items:
                raise self._error("a new argument", to_tla(key), position)
            self._expect(":>")
            items[key] = self.value()
            if self._accept(")"):
                return function(items)
            self._expect("@@")

    def _take(self) -> tuple[str, str, int]:
        token = self._tokens[self._next]
        self._next = min(self._next + 1, len(self._tokens) - 1)
        return token

    def _accept(self, symbol: str) -> bool:
        kind, text, _ = self._tokens[self._next]
        if kind == "symbol" and text == symbol:
            self._next += 1
            return True
        return False

    def _expect(self, symbol: str) -> None:
        _, text, position = self._tokens[self._next]
        if not self._accept(symbol):
            raise self._error(f"`{symbol}`", text, position)

    def _tokenize(self, text: str) -> list[tuple[str, str, int]]:
        tokens = []
        position = 0
        end = len(text.rstrip())
        while position < end:
            found = _TOKEN.match(text, position)
            if found is None or found.lastgroup is None:
                rest = text[position:].lstrip()
                raise self._error("a value", rest[:20], len(text) - len(rest))
            kind = found.lastgroup
            tokens.append((kind, found[kind], found.start(kind)))
            position = found.end()
        return [*tokens, ("end", "the end", end)]

    def _unescaped(self, text: str, position: int) -> str:
        def meant(found: re.Match[str]) -> str:
            if found[1] not in _ESCAPES:
                raise self._error("a known escape", found[0], position + 1 + found.start())
            return _ESCAPES[found[1]]

        return _ESCAPE.sub(meant, text)

    def _error(self, wanted: str, found: str, position: int) -> ToolError:
        shown = self._text if len(self._text) <= 200 else f"{self._text[:200]}..."
        return ToolError(
            f"not a TLA+ value: wanted {wanted} at character {position}, found {found!r}, "
            f"in {shown!r}; write it as TLC prints values"
        )
