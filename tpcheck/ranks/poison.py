"""Torch's own poison: what is allocated and not written reads as NaN, or as the largest integer."""

from __future__ import annotations

from typing import Any

import torch

from tpcheck.process.aspects import Left


def spread() -> list[Left]:
    """Switches it on; what a candidate had switched off of it. Without it unwritten memory holds
    what was there: often zeros, or the right values of before."""
    fill: Any = torch.utils.deterministic
    off: list[Left] = []
    if not torch._C._get_deterministic_algorithms():
        # set directly: `torch.use_deterministic_algorithms` loads the compiler, a second per rank
        torch._C._set_deterministic_algorithms(True, warn_only=True)
        off.append(Left("torch.use_deterministic_algorithms", restored=True))
    if not fill.fill_uninitialized_memory:
        fill.fill_uninitialized_memory = True
        name = "torch.utils.deterministic.fill_uninitialized_memory"
        off.append(Left(name, restored=True))
    return off
