"""The norm of gradients that are sharded, replicated and tied equals that of the plain model, and
so does the step that follows, clipped or not."""

import math
from dataclasses import replace

from fixtures.parallel.clipping import Clipping
from properties import block, mlp, tied_embedding
from tpcheck import Check, Norm


def _clipped(check: Check, order: float) -> Check:
    spec = replace(check.spec, norm=Norm(order), budget=None)
    return replace(check, spec=spec, clip=Clipping(order), communication=False)


mlp_norm = _clipped(mlp.mlp, 2.0)
mlp_infinity_norm = _clipped(mlp.mlp, math.inf)
block_sp_norm = _clipped(block.block_sp, 2.0)
tied_norm = _clipped(tied_embedding.tied_embedding, 2.0)
mlp_sp_sum_of_sizes = _clipped(mlp.mlp_sp, 1.0)
