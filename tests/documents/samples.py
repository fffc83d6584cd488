"""Samples of output: what may differ from run to run, and how a page gets new ones."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from tests.documents.blocks import blocks

_NUMBER = re.compile(r"[-+]?\d+\.\d+(?:e[-+]?\d+)?|[-+]?\d+e[-+]?\d+")


def masked(line: str) -> str:
    """A line without what differs from run to run: times, widths of columns. The id of a case is
    that of its dims and its seed, and differs with them alone."""
    line = re.sub(r"\d+(\.\d+)? s\b", "T s", line)
    return " ".join(line.split())


def alike(shown: str, printed: str) -> bool:
    """Whether two lines say the same; numbers with a fraction may differ in the third figure. One
    that is shown with `…` at its end is the beginning of the other."""
    shown, printed = masked(shown), masked(printed)
    if shown.endswith("…"):
        return printed.startswith(shown.rstrip("… "))
    if _NUMBER.sub("#", shown) != _NUMBER.sub("#", printed):
        return False
    pairs = zip(_NUMBER.findall(shown), _NUMBER.findall(printed), strict=True)
    return all(math.isclose(float(a), float(b), rel_tol=0.02) for a, b in pairs)


def same(shown: list[str], printed: list[str]) -> bool:
    """Whether what is printed is what is shown; a line `…` stands for any lines, or none."""
    if not shown:
        return not printed
    if shown[0].strip() == "…":
        return any(same(shown[1:], printed[n:]) for n in range(len(printed) + 1))
    return bool(printed) and alike(shown[0], printed[0]) and same(shown[1:], printed[1:])


def rewritten(text: str, found: Mapping[int, list[str]]) -> str:
    """A page with new samples: the line of a command → what it prints."""
    lines = text.splitlines()
    for block in reversed(blocks(text)):
        for command in reversed(block.commands):
            if command.shown is None or command.line not in found:
                continue
            old = slice(command.line, command.line + len(command.shown))
            lines[old] = found[command.line]
    return "\n".join(lines) + "\n"
