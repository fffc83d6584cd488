"""Options that several commands share, and how their values are read. Costs no torch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from tpcheck.errors import InvalidArgument

Engine = Annotated[str, typer.Option("--engine", help="gloo, nccl or threads.")]
Examples = Annotated[int, typer.Option("--examples", min=1, help="Cases a check, at most.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the search.")]
Ranks = Annotated[int | None, typer.Option("--ranks", min=1, help="Size of the world of ranks.")]
TimeLimit = Annotated[float, typer.Option("--time-limit", help="Seconds a case may take.")]
CorpusDir = Annotated[Path | None, typer.Option("--corpus", help="Folder of saved cases.")]


def _writable(path: Path | None) -> Path | None:
    """A report is written when all is done: whether it can be is asked before."""
    if path is None:
        return None
    folder = next(p for p in path.absolute().parents if p.exists())
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InvalidArgument(f"can't write the report {path}: give a file in a writable folder")
    return path


JsonFile = Annotated[
    Path | None, typer.Option("--json", callback=_writable, help="Write the figures as JSON.")
]
JunitFile = Annotated[
    Path | None, typer.Option("--junit", callback=_writable, help="Write JUnit XML.")
]


def integers(text: str, option: str) -> tuple[int, ...]:
    """`2,4` → (2, 4)."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InvalidArgument(
            f"{option} {text!r} is not a list of numbers, such as {option} 2,4"
        ) from None


def duration(text: str) -> float:
    """`90`, `90s`, `2m`, `1h` → seconds."""
    unit = {"s": 1, "m": 60, "h": 3600}.get(text[-1:])
    try:
        seconds = float(text if unit is None else text[:-1]) * (unit or 1)
    except ValueError:
        seconds = -1.0
    if seconds <= 0:
        raise InvalidArgument(f"--time-budget {text!r} is not a time, such as 90s, 2m or 1h")
    return seconds
