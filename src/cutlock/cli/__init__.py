"""The command line: which commands there are, by what they are for.

A command is imported when it is called: torch alone takes a second, and help and completion
need none of it.
"""

from __future__ import annotations

import click

from cutlock.cli.command import Entry, ExitCode, ToolGroup
from cutlock.version import __version__

__all__ = ["COMMANDS", "main"]

COMMANDS = {
    "Runs": {
        "run": Entry("cutlock.cli.run:run", "Run a configuration from the start."),
        "resume": Entry("cutlock.cli.run:resume", "Continue a run from its last bundle."),
        "audit": Entry("cutlock.cli.audit:audit", "Account for every prompt of a run."),
        "inspect": Entry("cutlock.cli.inspect:inspect", "Verify a bundle and say what it holds."),
        "show": Entry("cutlock.cli.show:show", "Draw a run, a log or a trace as one page."),
        "demo": Entry("cutlock.cli.demo:demo", "Train, kill three times, resume each time, audit."),
    },
    "Model": {
        "check": Entry("cutlock.cli.models:check", "Check the models of the protocol."),
        "mutants": Entry("cutlock.cli.models:mutants", "Break the model, one place at a time."),
        "doctor": Entry("cutlock.cli.models:doctor", "Show which Java and which TLC are found."),
    },
    "Bond of model and code": {
        "paths": Entry("cutlock.cli.paths:paths", "Take every transition on the real code."),
        "replay": Entry("cutlock.cli.replay:replay", "Replay traces on the real code."),
        "validate": Entry(
            "cutlock.cli.validate:validate_runs",
            "Have TLC accept the logs of runs.",
        ),
    },
    "Tools": {
        "example": Entry("cutlock.cli.tools:example", "Print an example to start from."),
        "bench": Entry("cutlock.cli.bench:bench", "Measure costs beside alternatives."),
        "schema": Entry("cutlock.cli.tools:schema", "Print the schema of a --json result."),
        "completion": Entry(
            "cutlock.cli.tools:completion", "Print the completion script of a shell."
        ),
    },
}


@click.group(
    cls=ToolGroup,
    sections=COMMANDS,
    exits={
        ExitCode.OK: "as expected",
        ExitCode.FAILED: "the run failed, or something was found that breaks a promise",
        ExitCode.USAGE: "wrong usage, configuration, or path",
        ExitCode.TOOL_MISSING: "Java or TLC is missing",
        ExitCode.TOOL_FAILED: "a specification or the checker itself failed",
        ExitCode.OUT_OF_TIME: "out of time without an answer",
        ExitCode.INTERRUPTED: "interrupted",
    },
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="cutlock")
def main() -> None:
    """Checkpoints of asynchronous RL post-training as one atomic cut."""


if __name__ == "__main__":
    main()
