"""Options that several commands share, and how their values are read. Costs no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tpcheck.errors import InvalidArgument

Engine = Annotated[str, typer.Option("--engine", help="gloo, nccl or threads.")]
Ranks = Annotated[int | None, typer.Option("--ranks", help="Size of the world of ranks.")]
TimeLimit = Annotated[float, typer.Option("--time-limit", help="Seconds a case may take.")]
CorpusDir = Annotated[Path | None, typer.Option("--corpus", help="Folder of saved cases.")]


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
