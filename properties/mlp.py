"""The tensor-parallel MLP equals the plain one, with and without sequence parallelism."""

from typing import Any

from fixtures.parallel.mlp import MLP
from tpcheck import Case, Check, specs


def _mlp(*, sequence_parallel: bool) -> Any:
    def build(case: Case, mesh: Any) -> MLP:
        return MLP.of(case, mesh, sequence_parallel=sequence_parallel)

    return build


mlp = Check(specs.mlp(), candidate=_mlp(sequence_parallel=False), communication=True)
mlp_sp = Check(
    specs.mlp(sequence_parallel=True), candidate=_mlp(sequence_parallel=True), communication=True
)
