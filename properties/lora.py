"""Linear layers with a low-rank adapter equal the unsharded one, merged and unmerged."""

from typing import Any

from fixtures.parallel.lora import LoRAColumnLinear, LoRARowLinear
from tpcheck import Case, Check, specs


def _build(layer: Any, *, sequence_parallel: bool = False) -> Any:
    def build(case: Case, mesh: Any) -> Any:
        names = ("in_features", "out_features", "rank", "scale", "merged", "bias")
        sizes = {name: case[name] for name in names}
        group = mesh["tp"].get_group()
        return layer(**sizes, group=group, sequence_parallel=sequence_parallel)

    return build


lora_column_linear = Check(
    specs.lora_column_linear(), candidate=_build(LoRAColumnLinear), communication=True
)
lora_column_linear_sp = Check(
    specs.lora_column_linear(sequence_parallel=True),
    candidate=_build(LoRAColumnLinear, sequence_parallel=True),
    communication=True,
)
lora_row_linear = Check(
    specs.lora_row_linear(), candidate=_build(LoRARowLinear), communication=True
)
lora_row_linear_sp = Check(
    specs.lora_row_linear(sequence_parallel=True),
    candidate=_build(LoRARowLinear, sequence_parallel=True),
    communication=True,
)
