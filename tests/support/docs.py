"""Pages of the documentation as a reader of the repository sees them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        ROOT / "spec" / "README.md",
        ROOT / "traces" / "README.md",
        *(ROOT / "docs").rglob("*.md"),
    ]
)
_PARSER = MarkdownIt().enable("table")


@dataclass(frozen=True)
class Page:
    """One file of Markdown."""

    path: Path

    def __str__(self) -> str:
        return str(self.path.relative_to(ROOT))

    @cached_property
    def tokens(self) -> list[Token]:
        return _PARSER.parse(self.path.read_text())

    @property
    def _inline(self) -> Iterator[Token]:
        for token in self.tokens:
            yield from token.children or ()

    @property
    def links(self) -> list[str]:
        """Targets of links and pictures."""
        found = [token.attrs.get("href") or token.attrs.get("src") for token in self._inline]
        return [str(target) for target in found if target]

    @property
    def anchors(self) -> set[str]:
        """Names of headings, as sites and repositories make them."""
        heads = zip(self.tokens, self.tokens[1:], strict=False)
        return {slug(text.content) for head, text in heads if head.type == "heading_open"}

    @property
    def code(self) -> list[str]:
        """Code within the text."""
        return [token.content for token in self._inline if token.type == "code_inline"]

    @property
    def blocks(self) -> list[str]:
        """Code in blocks of its own."""
        return [t.content for t in self.tokens if t.type in {"fence", "code_block"}]

    @property
    def lines(self) -> list[str]:
        """Lines of blocks; one that is continued is one."""
        return [
            line.strip()
            for block in self.blocks
            for line in block.replace("\\\n", " ").splitlines()
            if line.strip()
        ]

    def sections(self) -> Iterator[tuple[str, list[str]]]:
        """Headings with the blocks below them."""
        heading, blocks = "", []
        for token, following in zip(self.tokens, [*self.tokens[1:], None], strict=True):
            if token.type == "heading_open" and following is not None:
                yield heading, blocks
                heading, blocks = following.content, []
            elif token.type in {"fence", "code_block"}:
                blocks = [*blocks, token.content]
        yield heading, blocks


def slug(heading: str) -> str:
    """The anchor of a heading."""
    words = re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower())
    return words.strip().replace(" ", "-")


ALL = [Page(path) for path in PAGES]
