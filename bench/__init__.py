"""Measurements of cutlock, each beside what would be taken instead; `cutlock bench` runs them.

A group is a module of this package whose `measure(session)` yields `Measurement`s. The first
line of its docstring is its title on the page.
"""

import ast
from pathlib import Path

from cutlock.plane.loopback import keep_ray_on_loopback

# Before any group imports ray.
keep_ray_on_loopback()

GROUPS = ("buffer", "bundle", "cut", "event_log", "metrics", "model", "recovery", "slots")


def described(group: str) -> tuple[str, str]:
    """Title and text of a group, without importing it and all that it needs."""
    source = Path(__file__).with_name(f"{group}.py").read_text()
    title, _, text = (ast.get_docstring(ast.parse(source)) or group).partition("\n")
    return title.rstrip("."), text.strip()
