"""Tensors that come back from ranks: a file per rank, in a folder that candidates can write to."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor


def file_of(folder: Path, rank: int) -> Path:
    """Where a rank's tensors are."""
    return folder / f"rank{rank}.safetensors"


def read(folder: Path, rank: int) -> dict[str, Tensor] | None:
    """What a rank has written; None where it has not, or the candidate has put something else
    there: a pipe would be waited for, in a call that hears no signal."""
    try:
        file = os.open(file_of(folder, rank), os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None
        return load_file(f"/dev/fd/{file}")
    except (OSError, SafetensorError):
        return None
    finally:
        os.close(file)
