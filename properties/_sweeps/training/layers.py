"""Layers of fairscale's model parallelism."""

from dataclasses import replace

from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from fixtures.released.fairscale import model_parallel
from tpcheck import Case, Check, Spec, specs


def _needs(spec: Spec) -> Spec:
    return replace(spec, preload=("fairscale",))


def _column(case: Case, mesh: DeviceMesh) -> nn.Module:
    from fairscale.nn.model_parallel.layers import ColumnParallelLinear

    model_parallel(mesh)
    sizes = case["in_features"], case["out_features"]
    module: nn.Module = ColumnParallelLinear(*sizes, bias=case["bias"], gather_output=False)
    return module


def _row(case: Case, mesh: DeviceMesh) -> nn.Module:
    from fairscale.nn.model_parallel.layers import RowParallelLinear

    model_parallel(mesh)
    sizes = case["in_features"], case["out_features"]
    module: nn.Module = RowParallelLinear(*sizes, bias=case["bias"], input_is_parallel=True)
    return module


def _embedding(case: Case, mesh: DeviceMesh) -> nn.Module:
    from fairscale.nn.model_parallel.layers import VocabParallelEmbedding

    model_parallel(mesh)
    module: nn.Module = VocabParallelEmbedding(case["vocab"], case["hidden"])
    return module


fairscale_column = Check(_needs(specs.column_linear(even=True)), candidate=_column, processes=True)
fairscale_row = Check(_needs(specs.row_linear(even=True)), candidate=_row, processes=True)
fairscale_embedding = Check(
    _needs(specs.embedding(even=True)), candidate=_embedding, processes=True
)
