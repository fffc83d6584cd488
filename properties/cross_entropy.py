"""The cross-entropy over vocabulary shards equals `F.cross_entropy`: every reduction, ignored
targets, smoothed labels, z-loss, padded vocabularies, in the logits' dtype and in float32."""

from typing import Any

from fixtures.parallel.cross_entropy import VocabParallelCrossEntropy
from tpcheck import Case, Check, specs


def _loss(*, upcast: bool = False) -> Any:
    def build(case: Case, mesh: Any) -> VocabParallelCrossEntropy:
        names = ("vocab", "width", "reduction", "label_smoothing", "z_loss")
        dims = {name: case[name] for name in names}
        return VocabParallelCrossEntropy(**dims, upcast=upcast, group=mesh["tp"].get_group())

    return build


SMOOTHING, Z_LOSS = (0.0, 0.1), (0.0, 0.01)

cross_entropy = Check(
    specs.cross_entropy(label_smoothing=SMOOTHING, z_loss=Z_LOSS),
    candidate=_loss(),
    communication=True,
)
cross_entropy_padded = Check(
    specs.cross_entropy(label_smoothing=SMOOTHING, z_loss=Z_LOSS, padded=True),
    candidate=_loss(),
    communication=True,
)
cross_entropy_upcast = Check(
    specs.cross_entropy(label_smoothing=SMOOTHING, z_loss=Z_LOSS, upcast=True),
    candidate=_loss(upcast=True),
    communication=True,
)
