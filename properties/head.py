"""The output head equals `F.linear`, with its logits left sharded or gathered."""

from typing import Any

from fixtures.parallel.linear import ColumnLinear
from tpcheck import Case, Check, specs


def _head(**options: Any) -> Any:
    def build(case: Case, mesh: Any) -> ColumnLinear:
        sizes = case["hidden"], case["vocab"]
        return ColumnLinear(*sizes, bias=case["bias"], group=mesh["tp"].get_group(), **options)

    return build


head = Check(specs.head(), candidate=_head(), communication=True)
head_sp = Check(
    specs.head(sequence_parallel=True), candidate=_head(sequence_parallel=True), communication=True
)
head_gathered = Check(
    specs.head(gathered=True), candidate=_head(gather_output=True), communication=True
)
head_gathered_sp = Check(
    specs.head(gathered=True, sequence_parallel=True),
    candidate=_head(gather_output=True, sequence_parallel=True),
    communication=True,
)
