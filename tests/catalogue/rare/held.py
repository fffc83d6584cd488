"""How these kernels hold rows: how many at once, and a whole one in a block."""

import triton
from torch import Tensor

#: Rows of one program.
ROWS_AT_ONCE = 32


def unit(x: Tensor) -> Tensor:
    """x with unit stride along its rows."""
    return x if x.stride(-1) == 1 else x.contiguous()


def block_of(width: int) -> int:
    """A whole row."""
    return int(triton.next_power_of_2(max(width, 1)))
