"""What styles promise is what torch and transformers do when they are applied."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor import parallel as tensor_parallel

from tpcheck import InvalidArgument, audit
from tpcheck.plan.styles import STRINGS, read
from tpcheck.plan.unknown_style import fake_mesh, placements, quiet

MODULES = {
    "linear": nn.Linear(4, 8),
    "bare": nn.Linear(4, 8, bias=False),
    "embedding": nn.Embedding(8, 4),
    "norm": nn.LayerNorm(4),
}
STYLES = {
    "column": tensor_parallel.ColwiseParallel(),
    "column_sp": tensor_parallel.ColwiseParallel(input_layouts=Shard(1)),
    "column_whole": tensor_parallel.ColwiseParallel(output_layouts=Replicate()),
    "row": tensor_parallel.RowwiseParallel(),
    "row_sp": tensor_parallel.RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
    "sequence": tensor_parallel.SequenceParallel(),
    "input": tensor_parallel.PrepareModuleInput(
        input_layouts=Shard(1), desired_input_layouts=Replicate()
    ),
    "output": tensor_parallel.PrepareModuleOutput(
        output_layouts=Partial(), desired_output_layouts=Shard(1)
    ),
}


def in_words(model: nn.Module) -> dict[str, str]:
    """Parameter → placement, of a model that was parallelized."""
    out = {}
    for name, tensor in model.named_parameters():
        is_dtensor = isinstance(tensor, DTensor)
        own: Any = tensor.placements[0] if is_dtensor else None
        out[name] = "whole" if own is None else "Replicate()" if own == Replicate() else str(own)
        out[name] = f"Shard({own.dim})" if hasattr(own, "dim") else out[name]
    return out


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("module", MODULES)
def test_torch_does_what_is_promised(style: str, module: str) -> None:
    given = STYLES[style]
    result = audit(MODULES[module], {"": given}, tp=2)
    promised = {p.name: p.placement for p in result.parameters}
    with fake_mesh(2) as mesh, quiet():
        applied = copy.deepcopy(MODULES[module]).to("meta")
        try:
            given._apply(applied, mesh)
        except NotImplementedError:
            assert result.codes[0] == "wrong-placement"
            assert "can only be applied to" in result.findings[0].message
            return
    done = in_words(applied)
    # a hook alone leaves plain tensors, which are whole like replicated ones
    assert done == promised


LINEAR = ("colwise", "colwise_rep", "rowwise", "rowwise_rep", "packed_colwise", "packed_rowwise")


@pytest.mark.parametrize("name", [*LINEAR, "embedding_rowwise", "embedding_colwise"])
def test_transformers_does_what_is_promised(name: str) -> None:
    """`shard_param` a parameter, as `apply_tensor_parallelism` calls it."""
    pytest.importorskip("transformers")
    from transformers.distributed.tensor_parallel import ALL_PARALLEL_STYLES

    module = "embedding" if name.startswith("embedding") else "linear"
    promised = {p.name: p.placement for p in audit(MODULES[module], {"": name}, tp=2).parameters}
    with fake_mesh(2) as mesh, quiet():
        applied = copy.deepcopy(MODULES[module]).to("meta")
        for own in list(applied._parameters):
            ALL_PARALLEL_STYLES[name].shard_param(applied, own, mesh)
    assert in_words(applied) == promised


def test_every_string_of_transformers_is_known() -> None:
    pytest.importorskip("transformers")
    from transformers.distributed.tensor_parallel import ALL_PARALLEL_STYLES

    # expert parallelism has its own plan
    experts = {"grouped_gemm", "ep_dispatch_experts", "ep_experts_allreduce", "ep_router"}
    assert set(ALL_PARALLEL_STYLES.keys()) - experts <= set(STRINGS)


def test_activations_are_read() -> None:
    assert (read(STYLES["column"]).takes, read(STYLES["column"]).gives) == ("whole", "features")
    assert read(STYLES["column_sp"]).takes == "sequence"
    assert read(STYLES["column_whole"]).gives == "whole"
    assert (read(STYLES["row"]).takes, read(STYLES["row"]).gives) == ("features", "whole")
    assert (read(STYLES["row_sp"]).gives, read(STYLES["row_sp"]).local) == ("sequence", False)
    assert read(STYLES["input"]).prepares == "whole"
    heads = tensor_parallel.SequenceParallel(sequence_dim=2)
    assert read(heads).keeps and read(heads).takes is None


class Halves(tensor_parallel.ParallelStyle):
    """A style of one's own: weights along the last dim, nothing else."""

    def _apply(self, module: nn.Module, device_mesh: Any) -> nn.Module:
        from torch.distributed.tensor import distribute_tensor

        if not hasattr(module, "weight"):
            raise TypeError("no weight here")
        split = distribute_tensor(module.weight, device_mesh, [Shard(-1)])
        module.register_parameter("weight", nn.Parameter(split))
        return module


def test_a_style_of_ones_own_is_applied_to_a_copy() -> None:
    module = nn.Linear(4, 8)
    result = audit(module, {"": Halves()}, tp=2, whole=("bias",))
    assert [(p.name, p.placement) for p in result.parameters] == [
        ("weight", "Shard(1)"),
        ("bias", "whole"),
    ]
    assert result.findings == [] and type(module.weight) is nn.Parameter
    assert not torch.distributed.is_initialized()
    with pytest.raises(InvalidArgument, match="Halves can't be applied to ReLU: no weight here"):
        placements(Halves(), nn.ReLU(), 2)
