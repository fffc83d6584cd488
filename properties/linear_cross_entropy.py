"""The head and its cross-entropy in one, over vocabulary shards, equal the plain ones, and keep no
logits."""

from typing import Any

from fixtures.parallel.linear_cross_entropy import LinearCrossEntropy
from tpcheck import Case, Check, specs

SMOOTHING, Z_LOSS = (0.0, 0.1), (0.0, 0.01)


def _fused(**options: Any) -> Any:
    def build(case: Case, mesh: Any) -> LinearCrossEntropy:
        names = ("vocab", "hidden", "chunks", "reduction", "label_smoothing", "z_loss")
        dims = {name: case[name] for name in names}
        return LinearCrossEntropy(**dims, group=mesh["tp"].get_group(), **options)

    return build


linear_cross_entropy = Check(
    specs.linear_cross_entropy(label_smoothing=SMOOTHING, z_loss=Z_LOSS),
    candidate=_fused(),
    communication=True,
)
linear_cross_entropy_sp = Check(
    specs.linear_cross_entropy(label_smoothing=SMOOTHING, z_loss=Z_LOSS, sequence_parallel=True),
    candidate=_fused(sequence_parallel=True),
    communication=True,
)
