"""What a kernel is held to besides its values, on tensors of this process."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from tpcheck.ranks.discipline import Discipline
from tpcheck.spec import Kernel
from tpcheck.tensors.strides import lay_out
from tpcheck.verdict import Mismatch


class Sees(torch.autograd.Function):
    """Keeps how each upstream gradient is laid out."""

    strides: ClassVar[list[tuple[int, ...]]] = []

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        Sees.strides.append(grads[0].stride())
        return grads[0].clone()


def test_each_backward_is_given_upstream_gradients_laid_out_alike() -> None:
    told: list[Mismatch] = []
    discipline = Discipline(
        Kernel(), 0, lambda given: {"output": Sees.apply(given["x"])}, told.append
    )
    for memory in ("sliced", "transposed", "padded"):
        numbers = torch.arange(12.0).reshape(3, 4)
        seed = lay_out(numbers, memory)
        first, x = {"output": numbers}, {"x": numbers.clone().requires_grad_()}
        Sees.strides.clear()
        discipline.repeated(first, {"x": numbers}, x, {"output": seed})
        assert set(Sees.strides) == {seed.stride()} and not told
        assert torch.equal(seed, numbers), "a backward that changes it changes a copy"
