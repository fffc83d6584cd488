"""Linear layers that multiply in float8 equal the unsharded one, with its scales."""

from typing import Any

from fixtures.parallel.float8 import Float8ColumnLinear, Float8RowLinear
from tpcheck import Case, Check, specs


def _build(layer: Any, *, sequence_parallel: bool = False) -> Any:
    def build(case: Case, mesh: Any) -> Any:
        sizes = {name: case[name] for name in ("in_features", "out_features", "scaling", "bias")}
        group = mesh["tp"].get_group()
        return layer(**sizes, group=group, sequence_parallel=sequence_parallel)

    return build


float8_column_linear = Check(
    specs.float8_column_linear(), candidate=_build(Float8ColumnLinear), communication=True
)
float8_column_linear_sp = Check(
    specs.float8_column_linear(sequence_parallel=True),
    candidate=_build(Float8ColumnLinear, sequence_parallel=True),
    communication=True,
)
float8_row_linear = Check(
    specs.float8_row_linear(), candidate=_build(Float8RowLinear), communication=True
)
float8_row_linear_sp = Check(
    specs.float8_row_linear(sequence_parallel=True),
    candidate=_build(Float8RowLinear, sequence_parallel=True),
    communication=True,
)
