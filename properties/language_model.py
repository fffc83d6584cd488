"""A small decoder from ids to its loss equals the plain one, tied and untied."""

from typing import Any

from fixtures.parallel.language_model import LanguageModel
from tpcheck import Case, Check, specs
from tpcheck.specs.block import block_dims


def _model(**options: Any) -> Any:
    def build(case: Case, mesh: Any) -> LanguageModel:
        return LanguageModel(
            case["vocab"],
            case["layers"],
            tied=case["tied"],
            group=mesh["tp"].get_group(),
            **block_dims(case),
            **options,
        )

    return build


language_model = Check(specs.language_model(), candidate=_model(), communication=True)
language_model_sp = Check(
    specs.language_model(sequence_parallel=True),
    candidate=_model(sequence_parallel=True),
    communication=True,
)
