"""Exit codes of all commands."""

from __future__ import annotations

import enum

from cutlock.errors import (
    BudgetError,
    BundleNotFoundError,
    ConfigError,
    ConformanceError,
    CutlockError,
    DivergenceError,
    NotEnabledError,
    ToolError,
    ToolMissingError,
)

__all__ = ["ExitCode", "exit_code"]


class ExitCode(enum.IntEnum):
    """What a command has come to; docs/command-line.md has the same table."""

    OK = 0
    """As expected."""
    FAILED = 1
    """The run failed, or something was found that breaks a promise."""
    USAGE = 2
    """Wrong usage, configuration or path; nothing was begun."""
    TOOL_MISSING = 3
    """Java or TLC was not found, or is too old."""
    TOOL_FAILED = 4
    """A specification cannot be read, or the checker failed."""
    OUT_OF_TIME = 5
    """The checker was stopped at its limit, without an answer."""
    INTERRUPTED = 130
    """Ctrl-C; what is kept was said."""
    BROKEN_PIPE = 141
    """Whoever read the output has stopped reading, e.g. `head`."""


def exit_code(error: CutlockError) -> ExitCode:
    """The code of a command that ends with this error."""
    match error:
        case DivergenceError() | NotEnabledError():
            return ExitCode.FAILED
        case ConfigError() | BundleNotFoundError() | ConformanceError():
            return ExitCode.USAGE
        case ToolMissingError():
            return ExitCode.TOOL_MISSING
        case ToolError():
            return ExitCode.TOOL_FAILED
        case BudgetError():
            return ExitCode.OUT_OF_TIME
    return ExitCode.FAILED
