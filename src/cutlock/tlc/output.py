"""What TLC said, read from its `-tool` output.

TLC frames its messages as `@!@!@STARTMSG code:class @!@!@` ... `@!@!@ENDMSG code @!@!@`,
sometimes one inside another. Lines outside of frames are the parser's (before 2219) or were
printed by the specification. The verdict needs the exit code and the messages to agree.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from cutlock.errors import ToolError
from cutlock.tlc.outcome import Coverage, Outcome, Progress, Step, Verdict
from cutlock.tlc.values import parse_value

__all__ = ["OutputReader", "assignments", "read_output"]


_WAY_OUT = "is it a TLC of another version? `cutlock doctor` says which there is"


class Code(enum.IntEnum):
    """The messages that mean something here."""

    ASSUMPTION_FALSE = 2104
    INVARIANT_AT_START = 2107
    PROPERTY_AT_START = 2108
    INVARIANT = 2110
    ACTION_PROPERTY = 2112
    DEADLOCK = 2114
    TEMPORAL = 2116
    LOOP = 2122
    FINISHED = 2186
    SUCCESS = 2193
    DEPTH = 2194
    TOTALS = 2199
    PROGRESS = 2200
    COVERAGE = 2201
    SIMULATED = 2209
    LIVENESS = 2212
    STATE = 2217
    STUTTERING = 2218
    PARSED = 2219
    VERSION = 2262
    COVERED_ACTION = 2772
    PARSE_FAILED = 3002


_CONFIG_CODES = frozenset(range(5001, 5007))
_EVALUATION_EXITS = frozenset({14, 75, 76, 77})
_VIOLATIONS = {
    10: {Code.ASSUMPTION_FALSE: Verdict.ASSUMPTION},
    11: {Code.DEADLOCK: Verdict.DEADLOCK},
    12: {Code.INVARIANT: Verdict.INVARIANT, Code.INVARIANT_AT_START: Verdict.INVARIANT},
    13: {
        Code.ACTION_PROPERTY: Verdict.ACTION_PROPERTY,
        Code.PROPERTY_AT_START: Verdict.ACTION_PROPERTY,
        Code.TEMPORAL: Verdict.TEMPORAL,
    },
    150: {Code.PARSE_FAILED: Verdict.PARSE_ERROR},
}
_NAMING = {
    Verdict.INVARIANT: (Code.INVARIANT, Code.INVARIANT_AT_START),
    Verdict.ACTION_PROPERTY: (Code.ACTION_PROPERTY, Code.PROPERTY_AT_START),
}

_FRAME = re.compile(r"@!@!@(?:STARTMSG (\d+):(\d+)|ENDMSG (\d+)) @!@!@$")
_COUNTS = re.compile(r"(-?[\d,]+) states generated.*?(-?[\d,]+) distinct.*?(-?[\d,]+) states left")
_PROGRESS_DEPTH = re.compile(r"Progress\((-?[\d,]+)\)")
_DEPTH = re.compile(r"search is (\d+)")
_NAMED = re.compile(r"(?:Invariant|Action property|Property) (.+?) is violated")
_COVERED = re.compile(r"<(\S+) .*>: (\d+):(\d+)$")
_HEADER = re.compile(r"(\d+): <(.+?)(?: line \d+, col .*)?>$")
_BACK = re.compile(r"(\d+): Back to state")
_VARIABLE = re.compile(r"(?:/\\ )?([A-Za-z_][A-Za-z0-9_!]*) = ")
_ERROR_CLASSES = frozenset({1, 2})
_WARNING_CLASS = 3
# Headings of traces, and the advice to use another garbage collector.
_UNTOLD = frozenset({2121, 2264, 2401})
_INITIAL = "Initial predicate"
_LAST_WORDS = 10  # lines outside of frames that are told when something went wrong
_PARSER_NOISE = ("Parsing file ", "Semantic processing of module ")


@dataclass
class _Message:
    code: int
    severity: int
    lines: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join(self.lines).strip()


class OutputReader:
    """Takes the output line by line, and makes an `Outcome` of it at the end."""

    def __init__(self) -> None:
        self.progress: Progress | None = None
        """The last that TLC reported, None before the first time."""
        self._open: list[_Message] = []
        self._parsing: list[str] = []
        self._printed: list[str] = []
        self._seen: dict[int, str] = {}
        self._errors: list[str] = []
        self._warnings: list[str] = []
        self._coverage: dict[str, Coverage] = {}
        self._states: list[str] = []

    def feed(self, line: str) -> None:
        """Take one line, with or without its end."""
        line = line.rstrip("\r\n")
        frame = _FRAME.search(line)
        if frame is None:
            self._text(line)
        elif frame[1] is not None:
            if frame.start():
                self._text(line[: frame.start()])
            self._open.append(_Message(int(frame[1]), int(frame[2])))
        elif not self._open or self._open[-1].code != int(frame[3]):
            self._errors.append(f"message {frame[3]} ends without a start")
        else:
            self._take(self._open.pop())

    def outcome(
        self, exit_code: int | None, seconds: float = 0.0, simulated: bool = False
    ) -> Outcome:
        """Close the output.

        Args:
            exit_code: of TLC; None if it was stopped at its limit.
            seconds: that the run took.
            simulated: random walks were asked for, so there is no complete search to confirm.
        """
        verdict, problem = self._verdict(exit_code, simulated)
        trace: tuple[Step, ...] = ()
        loop = None
        try:
            trace, loop = self._trace()
        except ToolError as error:
            verdict, problem = Verdict.TOOL_ERROR, f"the trace cannot be read: {error}"
        counts = self.progress
        depth = _DEPTH.search(self._seen.get(Code.DEPTH, ""))
        unframed = self._parsing if verdict is Verdict.PARSE_ERROR else []
        if verdict is Verdict.TOOL_ERROR:
            unframed = [*self._parsing, *self._printed][-_LAST_WORDS:]
        return Outcome(
            verdict=verdict,
            property=self._property(verdict),
            generated=counts.generated if counts else None,
            distinct=counts.distinct if counts and not simulated else None,
            depth=int(depth[1]) if depth else None,
            queue=counts.queue if counts and not simulated else None,
            coverage=self._coverage,
            trace=trace,
            loop=loop,
            stuttering=Code.STUTTERING in self._seen,
            liveness=Code.LIVENESS in self._seen,
            version=self._seen.get(Code.VERSION, ""),
            messages=(*unframed, *self._errors, *([problem] if problem else [])),
            warnings=tuple(self._warnings),
            printed=tuple(self._printed),
            exit_code=exit_code,
            seconds=seconds,
        )

    def _text(self, line: str) -> None:
        if self._open:
            self._open[-1].lines.append(line)
        elif Code.PARSED in self._seen:
            self._printed.append(line)
        elif line.strip() and not line.startswith(_PARSER_NOISE):
            self._parsing.append(line)

    def _take(self, message: _Message) -> None:
        text = message.text
        self._seen.setdefault(message.code, text)
        if message.severity in _ERROR_CLASSES and message.code not in _UNTOLD:
            self._errors.append(text)
        if message.severity == _WARNING_CLASS and message.code not in _UNTOLD:
            self._warnings.append(text)
        if self._open and message.lines:
            self._open[-1].lines += message.lines
        match message.code:
            case Code.PROGRESS | Code.SIMULATED | Code.TOTALS:
                self._count(text)
            case Code.COVERAGE:
                self._coverage = {}
            case Code.COVERED_ACTION:
                self._cover(text)
            case Code.STATE:
                self._states.append(text)
            case Code.INVARIANT_AT_START | Code.PROPERTY_AT_START:
                self._states.append(f"1: <{_INITIAL}>\n{text.partition(chr(10))[2]}")

    def _count(self, text: str) -> None:
        counts = _COUNTS.search(text)
        if counts is None:
            return
        depth = _PROGRESS_DEPTH.search(text)
        before = self.progress.depth if self.progress else 0
        self.progress = Progress(
            _number(depth[1]) if depth else before, *(_number(count) for count in counts.groups())
        )

    def _cover(self, text: str) -> None:
        found = _COVERED.match(text)
        if found is None:
            self._errors.append(f"coverage that cannot be read: {text!r}")
            return
        before = self._coverage.get(found[1], Coverage(0, 0))
        self._coverage[found[1]] = Coverage(
            before.distinct + int(found[2]), before.total + int(found[3])
        )

    def _verdict(self, exit_code: int | None, simulated: bool) -> tuple[Verdict, str]:
        """The verdict, and why it is not another one where that needs saying."""
        if exit_code is None:
            return Verdict.BUDGET, "stopped at the time limit"
        if self._open or Code.FINISHED not in self._seen:
            return Verdict.TOOL_ERROR, f"the output ends early, exit code {exit_code}"
        if exit_code == 0:
            return self._success(simulated)
        for code, verdict in _VIOLATIONS.get(exit_code, {}).items():
            if code in self._seen:
                return verdict, ""
        if exit_code == 151 or (exit_code == 255 and _CONFIG_CODES & self._seen.keys()):
            return Verdict.CONFIG_ERROR, ""
        if exit_code in _EVALUATION_EXITS:
            return Verdict.EVALUATION_ERROR, ""
        return Verdict.TOOL_ERROR, f"exit code {exit_code} is no result"

    def _success(self, simulated: bool) -> tuple[Verdict, str]:
        if self._errors:
            return Verdict.TOOL_ERROR, "exit code 0 in spite of errors"
        if simulated:
            return Verdict.SUCCESS, ""
        if Code.SUCCESS not in self._seen:
            return Verdict.TOOL_ERROR, "exit code 0, and TLC does not say that it found no error"
        if Code.TOTALS not in self._seen or self.progress is None or self.progress.queue != 0:
            return Verdict.TOOL_ERROR, "exit code 0, and the search is not complete"
        return Verdict.SUCCESS, ""

    def _property(self, verdict: Verdict) -> str | None:
        for code in _NAMING.get(verdict, ()):
            named = _NAMED.match(self._seen.get(code, ""))
            if named is not None:
                return named[1]
        return None

    def _trace(self) -> tuple[tuple[Step, ...], int | None]:
        steps = tuple(_read_step(text, number) for number, text in enumerate(self._states, 1))
        if Code.STUTTERING in self._seen:
            return steps, len(steps) - 1
        if Code.LOOP not in self._seen:
            return steps, None
        back = _BACK.match(self._seen[Code.LOOP])
        if back is None or not 1 <= int(back[1]) <= len(steps):
            raise ToolError(f"{self._seen[Code.LOOP]!r} names no state of {len(steps)}; {_WAY_OUT}")
        return steps, int(back[1]) - 1


def read_output(
    lines: Iterable[str], exit_code: int | None, seconds: float = 0.0, simulated: bool = False
) -> Outcome:
    """Read a whole output; see `OutputReader.outcome`."""
    reader = OutputReader()
    for line in lines:
        reader.feed(line)
    return reader.outcome(exit_code, seconds, simulated)


def _read_step(text: str, number: int) -> Step:
    first, _, rest = text.partition("\n")
    header = _HEADER.match(first)
    if header is None or int(header[1]) != number:
        raise ToolError(f"state {number} begins with {first!r}; {_WAY_OUT}")
    action = "Init" if header[2] == _INITIAL else header[2].partition("(")[0]
    return Step(action, {name: parse_value(value) for name, value in assignments(rest)})


def assignments(text: str) -> Iterator[tuple[str, str]]:
    """Names and texts of the values of a state, given as `/\\ name = value` lines.

    Raises:
        ToolError: there is something before the first variable.
    """
    name, value = "", ""
    for line in text.split("\n"):
        found = _VARIABLE.match(line)
        if found is not None:
            if name:
                yield name, value
            name, value = found[1], line[found.end() :]
        elif name:
            value += f"\n{line}"
        elif line.strip():
            raise ToolError(f"no variable in {line!r}; {_WAY_OUT}")
    if name:
        yield name, value


def _number(text: str) -> int:
    return int(text.replace(",", ""))
