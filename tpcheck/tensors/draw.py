"""Numbers from a case's seed: the same on every engine, degree and host.

Each tensor has a generator of its own, seeded by the case's seed and the tensor's name, so adding
a tensor, or drawing in another order, changes no other. Numbers are drawn on the CPU in float64
and rounded to the case's dtype: all precisions of one seed see (nearly) the same case.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
import torch
from torch import Tensor

from tpcheck.case import Case

TORCH_DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def torch_dtype(case: Case) -> torch.dtype:
    """The case's dtype as torch's."""
    return TORCH_DTYPES[case.dtype]


#: From so many numbers on, normal ones are numpy's, which take a third of the time.
MANY = 1 << 14


def _seed(case: Case, *names: object) -> int:
    digest = hashlib.sha256(repr((case.seed, *names)).encode()).digest()
    return int.from_bytes(digest[:7], "little")


def generator(case: Case, *names: object) -> torch.Generator:
    """The CPU generator of the tensor called `names` in this case."""
    return torch.Generator().manual_seed(_seed(case, *names))


class Draw:
    """What a spec's `inputs` draws with; `scope` keeps microbatches and dp groups apart."""

    def __init__(self, case: Case, *scope: object) -> None:
        self.case = case
        self.scope = scope

    def __call__(self, name: str, *shape: int) -> Tensor:
        """Standard normal numbers, float64, `shape`."""
        names = (*self.scope, name)
        if math.prod(shape) >= MANY:
            rng = np.random.Generator(np.random.SFC64(_seed(self.case, *names)))
            return torch.from_numpy(rng.standard_normal(shape))
        return torch.randn(shape, dtype=torch.float64, generator=generator(self.case, *names))

    def uniform(self, name: str, low: float, high: float, *shape: int) -> Tensor:
        """Uniform numbers in [low, high), float64."""
        rng = generator(self.case, *self.scope, name)
        return low + (high - low) * torch.rand(shape, dtype=torch.float64, generator=rng)

    def integers(self, name: str, low: int, high: int, *shape: int) -> Tensor:
        """Integers in [low, high), int64."""
        rng = generator(self.case, *self.scope, name)
        return torch.randint(low, high, shape, generator=rng)


def state(draw: Draw, name: str, tensor: Tensor, *, buffer: bool) -> Tensor:
    """A full parameter or buffer, away from every default.

    Matrices: normal / √(last dim), which keeps products near 1. Vectors (biases, norm weights,
    gates): a random sign times [0.5, 1.5), since a zero bias or a weight of one hides faults.
    Float buffers: [0.5, 1.5). Integer and bool buffers keep what the reference gave them.
    """
    shape = tuple(tensor.shape)
    if not tensor.is_floating_point():
        return tensor.detach().clone()
    if buffer:
        return draw.uniform(name, 0.5, 1.5, *shape)
    if tensor.ndim >= 2:
        return draw(name, *shape).div_(max(1, shape[-1]) ** 0.5)
    sign = draw.integers(f"{name} sign", 0, 2, *shape) * 2 - 1
    return draw.uniform(name, 0.5, 1.5, *shape) * sign


def cotangent(draw: Draw, name: str, tensor: Tensor) -> Tensor:
    """The random vector of the vector-Jacobian product for output `name`: full, float64.

    Random, since the gradient of a plain sum is the same in every column of a row-parallel
    weight, and a permuted slice would not show.
    """
    return draw(f"cotangent {name}", *tensor.shape)
