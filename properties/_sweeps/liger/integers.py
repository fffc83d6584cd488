"""Integer products of liger-kernel."""

import torch
from torch import Tensor

from fixtures.released.check import released
from fixtures.released.liger import PACKAGE, take
from fixtures.released.liger_references import strategies
from tpcheck import Argument


def _unpacked(packed: Tensor) -> Tensor:
    """[K / 4, N] → [K, N]: two bits each, of 0, 1, 2 for -1, 0, 1; the lowest are of the first
    quarter of the rows."""
    return torch.cat([(packed.long() >> shift) % 4 - 1 for shift in (0, 2, 4, 6)])


mm_int8int2 = released(
    PACKAGE,
    lambda a, packed: take("ops.experimental.mm_int8int2.matmul")(a, packed),
    reference=lambda a, packed: (a.long() @ _unpacked(packed)).int(),
    arguments={
        "a": Argument("rows", 512, integers=(0, 128), dtype="int8"),
        "packed": Argument(128, "width", integers=(0, 256), dtype="uint8"),
    },
    sizes={
        "rows": lambda sizes: strategies().sampled_from([1, 2, 33, 65]),
        "width": lambda sizes: strategies().sampled_from([1, 2, 33, 65]),
    },
)
