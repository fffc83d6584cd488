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
from tpcheck.placement import Replicate, Shard

# An activation between modules: the same on every rank; split along its last dim (`Shard(-1)`);
# split along the sequence (`Shard(1)`, or `Shard(0)` without a batch). None: not said.
Activation = Literal["whole", "features", "sequence"] | None
Split = Literal["column", "row", "packed column", "packed row", "probe"] | None


class Inapplicable(InvalidArgument):
    """A style that raises on such a module."""


@dataclass(frozen=True)
class Style:
    """One style, read.

    Args:
        name: as shown.
        split: how parameters are split; "probe" where only applying the style tells.
        takes, gives: the activation that comes in, and goes out.
        local: whether plain tensors come out (the rank's own part), not DTensors.
        keeps: whether its parameters are whole on purpose, and their gradients seen to.
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
        InvalidArgument: a string that no framework knows, or an object that is no style.
    """
    if isinstance(style, str):
        if style not in STRINGS:
            raise InvalidArgument(f"the style {style!r} is unknown{did_you_mean(style, STRINGS)}")
        return STRINGS[style]
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        ParallelStyle,
        PrepareModuleInput,
        PrepareModuleInputOutput,
        PrepareModuleOutput,
        RowwiseParallel,
        SequenceParallel,
    )

    if not isinstance(style, ParallelStyle):
        raise InvalidArgument(
            f"a plan's value is a ParallelStyle or a string; this is a {type(style).__name__}"
        )
    name = type(style).__name__
    if isinstance(style, (ColwiseParallel, RowwiseParallel)):
        column = isinstance(style, ColwiseParallel)
        takes, gives = _activation(style.input_layouts[0]), _activation(style.output_layouts[0])
        return Style(
            name,
            "column" if column else "row",
            takes,
            gives,
            local=style.use_local_output,
            embedding_dim=1 if column else 0,
            object=style,
        )
    if isinstance(style, SequenceParallel):
        # along another dim (heads, say) it keeps parameters whole all the same
        along: Activation = "sequence" if style.sequence_sharding[0].dim in (0, 1) else None
        local = style.use_local_output
        return Style(name, None, along, along, local=local, keeps=True, object=style)
    if isinstance(style, PrepareModuleInputOutput):
        style = style.prepare_module_input
    if isinstance(style, PrepareModuleInput):
        layouts = [
            *(style.desired_input_layouts or ()),
            *style.desired_input_kwarg_layouts.values(),
        ]
        works_on = next((_activation(own) for own in layouts if own is not None), None)
        return Style(name, prepares=works_on, object=style)
    if isinstance(style, PrepareModuleOutput):
        return Style(name, object=style)
    return Style(name, "probe", object=style)


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
        raise Inapplicable(
            f"{style.name} can only be applied to nn.Linear and nn.Embedding, "
            f"not to {type(module).__name__}"
        )
    if style.split in ("column", "packed column"):
        return Shard(max(tensor.ndim - 2, 0))
    return Replicate() if tensor.ndim == 1 else Shard(tensor.ndim - 1)
