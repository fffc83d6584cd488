"""An embedding and a head of one weight equal the plain ones: the gradient comes from both uses."""

from typing import Any

from fixtures.parallel.language_model import TiedEmbedding
from tpcheck import Case, Check, specs


def _tied(**options: Any) -> Any:
    def build(case: Case, mesh: Any) -> TiedEmbedding:
        return TiedEmbedding(case["vocab"], case["hidden"], group=mesh["tp"].get_group(), **options)

    return build


tied_embedding = Check(specs.tied_embedding(), candidate=_tied(), communication=True)
tied_embedding_sp = Check(
    specs.tied_embedding(sequence_parallel=True),
    candidate=_tied(sequence_parallel=True),
    communication=True,
)
tied_embedding_gathered = Check(
    specs.tied_embedding(gathered=True), candidate=_tied(gather_output=True), communication=True
)
