"""Of the site's build: pages that live beside the code, and links to files of the repository.

A page of `docs/` links to a file of the repository by its path, as it is read in the repository.
The site shows some of these files as pages of its own; to the others it links in the clone that
it is built in.
"""

from __future__ import annotations

import os.path
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
PAGES = {
    "spec/README.md": "specification.md",
    "traces/README.md": "traces.md",
    "CHANGELOG.md": "changes.md",
}
"""File of the repository: page of the site."""

_LINK = re.compile(
    r"(?<!!)\[(?P<text>[^\]\n]*(?:\n[^\]\n]*)?)\]\((?P<path>[^)#\s:]+)(?P<anchor>#[^)\s]*)?\)"
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that live beside the code."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text()
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Point every link to where the site has its target."""
    beside = {place: source for source, place in PAGES.items()}
    here = page.file.src_uri
    folder = os.path.dirname(beside.get(here, f"docs/{here}"))
    up = "../" * here.count("/")
    to_root = os.path.relpath(ROOT, Path(config.site_dir, here).parent)

    def moved(link: re.Match[str]) -> str:
        anchor = link["anchor"] or ""
        target = os.path.normpath(os.path.join(folder, link["path"]))
        if target in PAGES:
            return f"[{link['text']}]({up}{PAGES[target]}{anchor})"
        if target.startswith("docs/") and not (ROOT / target).is_dir():
            return f"[{link['text']}]({up}{target.removeprefix('docs/')}{anchor})"
        if not (ROOT / target).exists():
            return link[0]  # for the strict build to refuse
        return f'<a href="{to_root}/{target}">{link["text"]}</a>'

    return _LINK.sub(moved, markdown)
