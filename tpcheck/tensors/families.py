"""What the numbers of an input are like: kernels lose digits, or divide by nothing, where normal
ones show neither.
"""

from __future__ import annotations

import torch
from torch import Tensor

#: Of shifted numbers, in their standard deviation. A variance that is computed as E[x²] − E[x]²
#: loses 12 of its bits there; with much more, low precision would hold the mean alone.
MEAN = 64.0
#: How much larger an outlier is: exponentials of it overflow, and it is all of a norm.
OUTLIER = 256.0


def of_family(family: str, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Normal numbers made ones of the family.

    `shifted`: far from zero, on the side on which the first number is. `subnormal`: about the
    smallest normal number of the dtype (float32's in float64). `equal`: the same along a row.
    `outlier`: one in the last row is far larger than all. `infinite`: −∞ in the first of several
    rows and ∞ in the last. `zeros`: every second row. `one-hot`: one number of each row, the others
    zero. Rows are along the last dim; vectors have none, and are shifted or subnormal alone.
    """
    if family == "shifted":
        return tensor + (MEAN if _begins_above_zero(tensor) else -MEAN)
    if family == "subnormal":
        # of float64 the errors could not be told: the reference is computed in it
        narrow = torch.float32 if dtype == torch.float64 else dtype
        return tensor / 2.0 * torch.finfo(narrow).smallest_normal
    if tensor.dim() < 2 or not tensor.numel():
        return tensor
    if family == "equal":
        return tensor[..., :1].expand_as(tensor).clone()
    made = tensor.clone()
    rows = made.view(-1, made.shape[-1])
    if family == "outlier":
        rows[-1, -1] *= OUTLIER
    if family == "infinite" and len(rows) > 2:  # others are there, to be judged
        rows[0, 0] = -torch.inf
        rows[-1, -1] = torch.inf
    if family == "zeros":
        rows[1::2] = 0.0
    if family == "one-hot":
        at = torch.arange(len(rows)) * 7 % rows.shape[1]
        rows.mul_(torch.nn.functional.one_hot(at, rows.shape[1]))
    return made


def _begins_above_zero(tensor: Tensor) -> bool:
    return not tensor.numel() or bool(tensor.flatten()[0] >= 0)
