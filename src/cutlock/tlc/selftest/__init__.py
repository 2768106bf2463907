"""Shows that TLC finds what is known to be wrong, before anything else that it says is believed.

The models are beside this file. Each takes about a second, most of it the start of Java.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cutlock.errors import BudgetError, ToolError
from cutlock.tlc.check import check_model
from cutlock.tlc.logcheck import LogSpec, LogVerdict, check_logs, event
from cutlock.tlc.manifest import load_manifest
from cutlock.tlc.run import Toolchain

__all__ = ["FOLDER", "self_test"]

FOLDER = Path(__file__).parent
_UP, _RESET = event("Up", {}), event("Reset", {})
_LOGS = ((_UP, _UP, _UP, _RESET), (_UP, _RESET, _UP))
_LOG_VERDICTS = (LogVerdict(True, 4, 4), LogVerdict(False, 1, 3))


def self_test(
    toolchain: Toolchain,
    folder: Path = FOLDER,
    watch: Callable[[str], None] | None = None,
) -> None:
    """Run every known model and the known logs; quiet if all is as it should be.

    Raises:
        ToolError: TLC missed a fault, or found one where there is none.
    """
    manifest = load_manifest(folder / "manifest.toml")
    wrong = []
    for model in manifest.models:
        if watch is not None:
            watch(model.name)
        result = check_model(toolchain, manifest, model).result
        if not result.ok:
            wrong.append(f"{model.name}: {'; '.join(result.why_not)}")
    if watch is not None:
        watch("logs")
    try:
        verdicts = check_logs(toolchain, LogSpec(folder / "DialLog.tla"), _LOGS)
    except (BudgetError, ToolError) as error:
        wrong.append(str(error))
    else:
        if verdicts != _LOG_VERDICTS:
            wrong.append(f"logs: expected {_LOG_VERDICTS}, got {verdicts}")
    if wrong:
        raise ToolError(
            f"the checker fails its self-test, so nothing it says is believed: {'; '.join(wrong)}; "
            "`cutlock doctor` says which Java and jar are used"
        )
