"""Buffers that no checkpoint holds, as a candidate has computed them: against the reference's.

An error counts relative to the element and to the root mean square of all. Two formulas for one
table differ by a few roundings (`alike`); one in a lower precision by more, which outputs tell; one
of something else in the first half of its digits (`unlike`).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from tpcheck.evidence import NotAsSaved, Values
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Kind

#: So many roundings apart two tables are one: a power by `exp(log)`, an angle of position 100.
ROUNDINGS = 64


def unlike(here: Tensor, due: Tensor, *, name: str, rank: int) -> Mismatch | None:
    """Where a buffer is something else than it should be; integers and bools must be equal.

    Args:
        here: the candidate's, in its own dtype.
        due: the reference's, of the same shape.
    """
    value, wanted, error, size = _compared(here, due)
    bound = _epsilon(here, due) ** 0.5 * size
    return _worst(~(error <= bound), value, wanted, error, bound, name, rank)


def _worst(
    wrong: Tensor,
    value: Tensor,
    wanted: Tensor,
    error: Tensor,
    bound: Tensor,
    name: str,
    rank: int,
) -> Mismatch | None:
    """Of the elements that are wrong, the one that is furthest beyond its bound."""
    if not bool(wrong.any()):
        return None
    excess = torch.where(wrong, (error - bound).nan_to_num(nan=torch.inf), -torch.inf)
    worst = int(excess.argmax())
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(worst), wanted.shape))
    detail = Values(int(wrong.sum()), wrong.numel(), nan=int(value.isnan().sum()) or None)
    due_there, found, off, allowed = (
        float(t.reshape(-1)[worst]) for t in (wanted, value, error, bound)
    )
    return Mismatch(name, Kind.PARAM, rank, index, due_there, found, off, allowed, detail)


def not_as_saved(here: Tensor, due: Tensor, *, name: str, rank: int) -> Mismatch | None:
    """Where a loaded tensor is not what was saved, to the bit; NaN is as NaN.

    Args:
        here, due: of one shape.
    """
    value, wanted, error, _ = _compared(here, due)
    wrong = ~((here.detach() == due.to(here.device)) | (value.isnan() & wanted.isnan()))
    bound = torch.zeros_like(error)
    found = _worst(wrong, value, wanted, error, bound, name, rank)
    if found is None:
        return None
    assert isinstance(found.detail, Values), found
    return replace(found, detail=NotAsSaved(**vars(found.detail)))


def alike(here: Tensor, due: Tensor) -> bool:
    """Whether it differs from what it should be by a few roundings, or not at all."""
    _, _, error, size = _compared(here, due)
    epsilon = _epsilon(here, due)
    return bool((error <= min(ROUNDINGS * epsilon, epsilon**0.5) * size).all())


def _compared(here: Tensor, due: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Both in float64, the error of each element, and the size that it is relative to."""
    value, wanted = here.detach().double(), due.to(here.device).double()
    same = (value == wanted) | (value.isnan() & wanted.isnan())
    finite = wanted.isfinite()
    size = wanted.abs()
    if bool(finite.any()):
        size = size + wanted[finite].square().mean().sqrt()
    error = (value - wanted).abs().masked_fill(same, 0.0)
    return value, wanted, error, size.masked_fill(~finite, 0.0)


def _epsilon(here: Tensor, due: Tensor) -> float:
    """ε of the coarser dtype, and of float32, in which either may have been computed before it was
    converted; 0 where one is exact."""
    if not (here.is_floating_point() and due.is_floating_point()):
        return 0.0
    return max(torch.finfo(t).eps for t in (here.dtype, due.dtype, torch.float32))
