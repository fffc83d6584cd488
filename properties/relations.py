"""What must come to the same, without a reference: degrees, sequence parallelism, fusion, parts; a
backward and the transpose of its forward."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fixtures.compositions import pairs
from fixtures.parallel.attention import Attention
from fixtures.parallel.conjugates import Gathered, ThroughSequence, ThroughSlices
from fixtures.parallel.fused import FusedColumnLinear
from fixtures.parallel.linear import ColumnLinear
from fixtures.parallel.mlp import MLP
from fixtures.parallel.parts import MLPInParts
from tpcheck import Case, Relation, Spec, specs


def _bare(spec: Spec) -> Spec:
    """The spec without what is true of it."""
    return replace(spec, reference=None)


def _of(cls: type, *names: str, **options: Any) -> Callable[[Case, Any], Any]:
    """`build(case, mesh)` of a class, with these dims as arguments."""

    def build(case: Case, mesh: Any) -> Any:
        arguments = {name: case[name] for name in names}
        return cls(**arguments, **options, group=mesh["tp"].get_group())

    return build


_SIZES = ("hidden", "heads", "kv_heads", "head_dim")
_FLAGS = ("bias", "norm", "residual", "qk_norm", "rotary", "causal")
_attention = _of(Attention, *_SIZES, *_FLAGS)
_attention_sp = _of(Attention, *_SIZES, *_FLAGS, sequence_parallel=True)
_MLP = ("hidden", "intermediate", "activation", "norm", "residual", "bias")
_LINEAR = ("in_features", "out_features", "bias")

attention_at_any_degree = Relation(_bare(specs.attention()), candidate=_attention)
attention_sp_is_attention = Relation(
    _bare(specs.attention(sequence_parallel=True)), candidate=_attention_sp, same_as=_attention
)
fused_column_is_column = Relation(
    _bare(specs.all_gather_linear()),
    candidate=_of(FusedColumnLinear, *_LINEAR, "chunks"),
    same_as=_of(ColumnLinear, *_LINEAR),
)
mlp_in_parts_is_at_once = Relation(
    _bare(specs.mlp()), candidate=_of(MLPInParts, *_MLP), same_as=_of(MLP, *_MLP)
)


def _gathered(case: Case, mesh: Any) -> Gathered:
    return Gathered(case["width"], mesh["tp"].get_group())


through_slices_is_its_transpose = Relation(
    pairs.through_slices(), candidate=_of(ThroughSlices), adjoint=True
)
through_sequence_is_its_transpose = Relation(
    pairs.through_sequence(), candidate=_of(ThroughSequence), adjoint=True
)
gather_is_its_transpose = Relation(pairs.gather(), candidate=_gathered, adjoint=True)
