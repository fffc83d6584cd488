"""The vocabulary-parallel embedding equals `F.embedding`, on the borders of its ranges too."""

from typing import Any

from fixtures.parallel.embedding import VocabParallelEmbedding
from tpcheck import Case, Check, specs


def _embedding(*, sequence_parallel: bool) -> Any:
    def build(case: Case, mesh: Any) -> VocabParallelEmbedding:
        return VocabParallelEmbedding(
            case["vocab"],
            case["hidden"],
            group=mesh["tp"].get_group(),
            sequence_parallel=sequence_parallel,
        )

    return build


embedding = Check(
    specs.embedding(), candidate=_embedding(sequence_parallel=False), communication=True
)
embedding_sp = Check(
    specs.embedding(sequence_parallel=True),
    candidate=_embedding(sequence_parallel=True),
    communication=True,
)
