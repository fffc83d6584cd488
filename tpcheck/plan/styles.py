"""What a style promises: how it splits parameters, what activation it takes and gives.

Two vocabularies: `ParallelStyle` objects of `torch.distributed.tensor.parallel`, and the strings
of transformers and xorl. Facts: the styles' `_apply` and `_partition_*` methods in torch 2.13,
`transformers.distributed.tensor_parallel` in 5.23, and xorl's `_resolve_tp_style`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn

from tpcheck.errors import InvalidArgument, did_you_mean
from tpcheck.figures.plan_causes import StyleRaised, WrongModule
from tpcheck.placement import Replicate, Shard
from tpcheck.report.plan_faults import inapplicable

# An activation between modules: replicated; sharded along its last dim (`Shard(-1)`); sharded along
# the sequence (`Shard(1)`, or `Shard(0)` without a batch). None: not said.
Activation = Literal["whole", "features", "sequence"] | None
Split = Literal["column", "row", "packed column", "packed row", "probe"] | None


class Inapplicable(InvalidArgument):
    """A style that raises on such a module; `.cause` says which and why."""

    def __init__(self, cause: WrongModule | StyleRaised) -> None:
        super().__init__(inapplicable(cause))
        self.cause = cause


@dataclass(frozen=True)
class Style:
    """One style, read.

    Args:
        name: as shown.
        split: how parameters are split; "probe" where only applying the style tells.
        takes, gives: the activation that comes in, and goes out.
        local: whether plain tensors come out (the rank's own part), not DTensors.
        keeps: whether its parameters are replicated on purpose, and their gradients seen to.
        prepares: the activation that the module under it works on.
        embedding_dim: the dim of an embedding's weight that is split.
        object: the `ParallelStyle`, where it is one.
    """

    name: str
    split: Split = None
    takes: Activation = None
    gives: Activation = None
    local: bool = True
    keeps: bool = False
    prepares: Activation = None
    embedding_dim: int | None = None
    object: Any = None


STRINGS = {
    "colwise": Style("colwise", "column", "whole", "features", embedding_dim=1),
    "colwise_rep": Style("colwise_rep", "column", "whole", "whole", embedding_dim=1),
    "colwise_gather_output": Style("colwise_gather_output", "column", "whole", "whole"),
    "rowwise": Style("rowwise", "row", "features", "whole", embedding_dim=0),
    "rowwise_rep": Style("rowwise_rep", "row", "whole", "whole", embedding_dim=0),
    "rowwise_split_input": Style("rowwise_split_input", "row", "whole", "whole", embedding_dim=0),
    "embedding": Style("embedding", "row", "whole", "whole", embedding_dim=0),
    "embedding_rowwise": Style("embedding_rowwise", "row", "whole", "whole", embedding_dim=0),
    "embedding_colwise": Style("embedding_colwise", "column", "whole", "whole", embedding_dim=1),
    "packed_colwise": Style("packed_colwise", "packed column", "whole", "features"),
    "packed_rowwise": Style("packed_rowwise", "packed row"),
    "sequence_parallel": Style("sequence_parallel", None, "sequence", "sequence", keeps=True),
    "replicated_with_grad_allreduce": Style("replicated_with_grad_allreduce", keeps=True),
    "replicate": Style("replicate", keeps=True),
    "mla_kv_a_proj": Style("mla_kv_a_proj", keeps=True),
    "all_reduce": Style("all_reduce"),
    "moe_tp_experts": Style("moe_tp_experts"),
    "moe_identity_expert": Style("moe_identity_expert"),
    "local_params": Style("local_params"),
}


def read(style: Any) -> Style:
    """The style behind a plan's value.

    Raises:
        InvalidArgument: a string that no framework knows, or an object that is not a style.
    """
    if isinstance(style, str):
        if style not in STRINGS:
            raise InvalidArgument(f"the style {style!r} is unknown{did_you_mean(style, STRINGS)}")
        return STRINGS[style]
    from torch.distributed.tensor import parallel

    if isinstance(style, parallel.ColwiseParallel):
        return _split(style, "column", embedding_dim=1)
    if isinstance(style, parallel.RowwiseParallel):
        return _split(style, "row", embedding_dim=0)
    if isinstance(style, parallel.SequenceParallel):
        return _kept(style)
    if isinstance(style, parallel.PrepareModuleInputOutput):
        return _prepares(style, style.prepare_module_input)
    if isinstance(style, parallel.PrepareModuleInput):
        return _prepares(style, style)
    if isinstance(style, parallel.PrepareModuleOutput):
        return Style(type(style).__name__, object=style)
    if isinstance(style, parallel.ParallelStyle):
        return Style(type(style).__name__, "probe", object=style)
    raise InvalidArgument(
        f"a plan's value is a ParallelStyle or a string; this is a {type(style).__name__}"
    )


def _split(style: Any, split: Split, *, embedding_dim: int) -> Style:
    """ColwiseParallel or RowwiseParallel."""
    return Style(
        type(style).__name__,
        split,
        _activation(style.input_layouts[0]),
        _activation(style.output_layouts[0]),
        local=style.use_local_output,
        embedding_dim=embedding_dim,
        object=style,
    )


def _kept(style: Any) -> Style:
    """SequenceParallel: along another dim (heads, say) it keeps parameters replicated, too."""
    along: Activation = "sequence" if style.sequence_sharding[0].dim in (0, 1) else None
    name, local = type(style).__name__, style.use_local_output
    return Style(name, None, along, along, local=local, keeps=True, object=style)


def _prepares(style: Any, inputs: Any) -> Style:
    """PrepareModuleInput, alone or as a part of `style`."""
    layouts = [*(inputs.desired_input_layouts or ()), *inputs.desired_input_kwarg_layouts.values()]
    works_on = next((_activation(layout) for layout in layouts if layout is not None), None)
    return Style(type(style).__name__, prepares=works_on, object=inputs)


def _activation(layout: Any) -> Activation:
    if layout.is_replicate():
        return "whole"
    if layout.is_shard():
        return "sequence" if layout.dim in (0, 1) else "features"
    return None


def placement_of(
    style: Style, module: nn.Module, name: str, tensor: Tensor
) -> Shard | Replicate | None:
    """Where `style` puts the parameter `name` of `module`; None where it leaves it alone.

    Raises:
        Inapplicable: the style can't be applied to such a module (torch raises, too).
    """
    if style.keeps:
        return Replicate()
    if style.split is None:
        return None
    if isinstance(module, nn.Embedding) and style.embedding_dim is not None:
        return Shard(style.embedding_dim)
    if style.object is not None and not isinstance(module, nn.Linear):
        raise Inapplicable(WrongModule(style.name, type(module).__name__))
    if style.split in ("column", "packed column"):
        return Shard(max(tensor.ndim - 2, 0))
    return Replicate() if tensor.ndim == 1 else Shard(tensor.ndim - 1)
