"""The pictures of `docs/pages.md`: `python -m tests.support.page_samples RUN`.

RUN is the directory of a run; the sample page beside them is made by the command itself; see there.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from cutlock.cli.show import show_page
from tests.support.chromium import HOW_TO_INSTALL, Page, find_chromium, started

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "docs" / "pages"


def main(run: Path) -> None:
    chromium = find_chromium()
    if chromium is None:
        sys.exit(HOW_TO_INSTALL)
    with tempfile.TemporaryDirectory() as made, started(chromium) as browser:
        late, whole = Path(made, "late.html"), Path(made, "run.html")
        show_page(ROOT / "traces" / "counterexamples" / "late_forget.itf.json", late, {})
        show_page(run, whole, {})
        for name, path, width, dark, part in (
            ("picture", SAMPLES / "cursor_early.html", 1100, False, ".scroller"),
            ("narrow", late, 360, True, None),
            ("run", whole, 1000, False, "#starts-title, .starts, .charts"),
        ):
            page = Page(browser, path, width, dark=dark)
            page.press("ArrowLeft")
            (SAMPLES / f"{name}.png").write_bytes(page.screenshot(part))
            page.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
