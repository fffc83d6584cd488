"""GEMMs fused with their collective, chunk by chunk, equal the plain product."""

from typing import Any

from fixtures.parallel.fused import FusedColumnLinear, FusedRowLinear
from tpcheck import Case, Check, specs


def fused(cls: type) -> Any:
    """Builds a fused layer of this class."""

    def build(case: Case, mesh: Any) -> Any:
        return cls(
            case["in_features"],
            case["out_features"],
            group=mesh["tp"].get_group(),
            bias=case["bias"],
            chunks=case["chunks"],
        )

    return build


all_gather_linear = Check(
    specs.all_gather_linear(), candidate=fused(FusedColumnLinear), communication=True
)
linear_reduce_scatter = Check(
    specs.linear_reduce_scatter(), candidate=fused(FusedRowLinear), communication=True
)
