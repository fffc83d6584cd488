"""How these kernels hold rows: in which dtype they sum, and how wide a block is."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

#: Rows of one program.
ROWS_AT_ONCE = 32


def sums_of(dtype: torch.dtype) -> Any:
    """Triton's dtype that sums are taken in."""
    return tl.float64 if dtype == torch.float64 else tl.float32


def held_in(dtype: torch.dtype) -> torch.dtype:
    """What statistics are stored in."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def unit(x: Tensor) -> Tensor:
    """x with unit stride along its rows."""
    return x if x.stride(-1) == 1 else x.contiguous()


def block_of(width: int) -> int:
    """A whole row."""
    return int(triton.next_power_of_2(max(width, 1)))
