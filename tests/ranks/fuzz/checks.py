"""A file of two kernels, one of which is wrong in rows of more than 16 elements; what a run of
`fuzz` over it prints and writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests import commands

CHECKS = """
import torch, tpcheck
from tpcheck import Argument

ROWS = {"x": Argument("rows", "width")}

def double(x):
    return x + x

def wrong_beyond_a_block(x):
    return torch.cat([x[..., :16] * 2, x[..., 16:] * 3], -1)

right = tpcheck.kernel_check(double, reference=double, arguments=ROWS)
wrong = tpcheck.kernel_check(wrong_beyond_a_block, reference=double, arguments=ROWS)
"""


def folder_of(place: Path, text: str = CHECKS) -> Path:
    """The folder, with the file in it."""
    (place / "kernels.py").write_text(text)
    return place


def fuzz(folder: Path, *words: str) -> tuple[int, str, dict[str, Any]]:
    """Runs it; the exit code, what is printed, and the report."""
    given = ["fuzz", "kernels.py", "--jobs", "1", "--json", "report.json", *words]
    code, text = commands.tpcheck(given, folder)
    report = folder / "report.json"
    return code, text, json.loads(report.read_text()) if report.exists() else {}


def ids(folder: Path) -> set[str]:
    """Of the saved cases."""
    return {path.stem for path in (folder / ".tpcheck" / "corpus").glob("*.json")}
