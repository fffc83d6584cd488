"""Column- and row-parallel linear layers equal `nn.Linear`, forward and backward."""

from typing import Any

from fixtures.parallel.linear import ColumnLinear, RowLinear
from tpcheck import Case, Check, specs


def _column(*, transposed: bool = False, sequence_parallel: bool = False) -> Any:
    def build(case: Case, mesh: Any) -> ColumnLinear:
        return ColumnLinear(
            case["in_features"],
            case["out_features"],
            group=mesh["tp"].get_group(),
            bias=case["bias"],
            transposed=transposed,
            sequence_parallel=sequence_parallel,
        )

    return build


def _row(*, transposed: bool = False, sequence_parallel: bool = False) -> Any:
    def build(case: Case, mesh: Any) -> RowLinear:
        return RowLinear(
            case["in_features"],
            case["out_features"],
            group=mesh["tp"].get_group(),
            bias=case["bias"],
            transposed=transposed,
            sequence_parallel=sequence_parallel,
        )

    return build


column_linear = Check(specs.column_linear(), candidate=_column(), communication=True)
column_linear_transposed = Check(
    specs.column_linear(transposed=True), candidate=_column(transposed=True), communication=True
)
column_linear_sp = Check(
    specs.column_linear(sequence_parallel=True),
    candidate=_column(sequence_parallel=True),
    communication=True,
)
row_linear = Check(specs.row_linear(), candidate=_row(), communication=True)
row_linear_transposed = Check(
    specs.row_linear(transposed=True), candidate=_row(transposed=True), communication=True
)
row_linear_sp = Check(
    specs.row_linear(sequence_parallel=True),
    candidate=_row(sequence_parallel=True),
    communication=True,
)
