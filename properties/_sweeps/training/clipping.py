"""torchtitan's clipping, of DTensors under a plan."""

from dataclasses import replace
from typing import Any

from torch import nn

from properties._frameworks import dtensor


def _clip(module: nn.Module, mesh: Any, most: float) -> Any:
    from torchtitan.distributed.utils import clip_grad_norm_

    return clip_grad_norm_(module.parameters(), most)


titan_clipping = replace(
    dtensor.dtensor_mlp_norm,
    spec=replace(dtensor.dtensor_mlp_norm.spec, preload=("torchtitan",)),
    clip=_clip,
    processes=True,
)
