"""What the numbers of an input are like: kernels lose digits, or divide by nothing, where normal
ones show neither.
"""

from __future__ import annotations

from torch import Tensor

#: Of shifted numbers, in their standard deviation. A variance that is computed as E[x²] − E[x]²
#: loses 12 of its bits there; with much more, low precision would hold the mean alone.
MEAN = 64.0
#: How much larger an outlier is: exponentials of it overflow, and it is all of a norm.
OUTLIER = 256.0


def of_family(family: str, tensor: Tensor) -> Tensor:
    """Normal numbers made ones of the family: `shifted`, far from zero; `equal`, the same along a
    row; `outlier`, one in the last row far larger than all; `zeros`, every second row. Rows are
    along the last dim; vectors have none, and are shifted alone."""
    if family == "shifted":
        return tensor + MEAN
    if tensor.dim() < 2 or not tensor.numel():
        return tensor
    if family == "equal":
        return tensor[..., :1].expand_as(tensor).clone()
    made = tensor.clone()
    rows = made.view(-1, made.shape[-1])
    if family == "outlier":
        rows[-1, -1] *= OUTLIER
    if family == "zeros":
        rows[1::2] = 0.0
    return made
