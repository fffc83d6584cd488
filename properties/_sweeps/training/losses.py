"""Cross-entropies over vocabulary shards of released packages: torch's `loss_parallel`, those of
torchtitan and fairscale."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn import functional as F

from fixtures.released.fairscale import model_parallel
from tpcheck import Case, Check, specs


class _LossParallel(nn.Module):
    """`F.cross_entropy` of a DTensor, inside `loss_parallel()`."""

    def __init__(self, case: Case, mesh: DeviceMesh) -> None:
        super().__init__()
        self.case, self.mesh = case, mesh["tp"]

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        shape = (*logits.shape[:-1], self.case["width"])
        stride = (shape[1] * shape[2], shape[2], 1)
        own = logits.contiguous()  # as the stride of the whole says
        whole = DTensor.from_local(own, self.mesh, [Shard(2)], shape=shape, stride=stride)
        loss = F.cross_entropy(
            whole.flatten(0, 1),
            targets.flatten(),
            reduction=self.case["reduction"],
            label_smoothing=self.case["label_smoothing"],
        )
        local: Tensor = loss.to_local() if isinstance(loss, DTensor) else loss
        return local


def _inside(
    module: Any, inputs: Sequence[Mapping[str, Tensor]], cotangents: Sequence[Mapping[str, Tensor]]
) -> list[Mapping[str, Tensor]]:
    """Forward and backward of each microbatch inside the context, as torch asks for it."""
    losses = []
    for given, seeds in zip(inputs, cotangents, strict=True):
        with loss_parallel():
            loss = module(**given)
            if seeds:
                loss.backward(seeds["loss"])
        losses.append({"loss": loss})
    return losses


torch_loss_parallel = Check(
    replace(specs.cross_entropy(reductions=("mean", "sum"), even=True), modes=()),
    candidate=_LossParallel,
    schedule=_inside,
    processes=True,
)


class _Titan(nn.Module):
    """The sum over tokens, by torchtitan's function of local tensors."""

    def __init__(self, case: Case, mesh: DeviceMesh) -> None:
        super().__init__()
        from torchtitan.components.loss import _LossParallelCrossEntropy

        self.loss, self.case = _LossParallelCrossEntropy, case
        self.group = mesh["tp"].get_group()

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        loss: Tensor = self.loss.apply(
            logits.flatten(0, 1), targets.flatten(), self.group, self.case["width"], "sum"
        )
        return loss


_summed = specs.cross_entropy(reductions=("sum",), upcast=True)


def _up_to_float32(space: Any) -> Any:
    """Cases of dtypes that the function computes in float32, and no more; it refuses shards that
    have no id."""
    meant = tuple(dtype for dtype in space.dtypes if dtype != "float64")
    drawn = _summed.cases(replace(space, dtypes=meant or ("float32",)))  # type: ignore[operator]
    return drawn.filter(_has_some_everywhere)


def _has_some_everywhere(case: Case) -> bool:
    shard = -(-case["vocab"] // case.tp)
    return bool((case.tp - 1) * shard < case["vocab"])


titan_cross_entropy = Check(
    replace(_summed, cases=_up_to_float32, preload=("torchtitan",)),
    candidate=_Titan,
    processes=True,
)


class _Fairscale(nn.Module):
    """The loss of each token, by fairscale's function of local tensors, which writes into them."""

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        from fairscale.nn.model_parallel.cross_entropy import vocab_parallel_cross_entropy

        own = logits.clone(memory_format=torch.contiguous_format)  # it takes no other
        loss: Tensor = vocab_parallel_cross_entropy(own, targets)
        return loss


def _fairscale(case: Case, mesh: DeviceMesh) -> nn.Module:
    model_parallel(mesh)
    return _Fairscale()


fairscale_cross_entropy = Check(
    replace(
        specs.cross_entropy(reductions=("none",), ignore_index=None, even=True),
        preload=("fairscale",),
    ),
    candidate=_fairscale,
    processes=True,
)
