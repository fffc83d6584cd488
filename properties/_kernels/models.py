"""The tensor-parallel MLP, block and cross-entropy with Triton kernels equal the plain ones."""

from typing import Any

from fixtures.kernels.candidates import (
    KernelBlock,
    KernelCrossEntropy,
    KernelFusedColumnLinear,
    KernelFusedRowLinear,
    KernelMLP,
)
from fixtures.kernels.contracts import a_launch_per_piece
from properties.fused import fused
from tpcheck import Case, Check, specs
from tpcheck.specs.block import block_dims


def _mlp(*, sequence_parallel: bool) -> Any:
    def build(case: Case, mesh: Any) -> KernelMLP:
        return KernelMLP.of(case, mesh, sequence_parallel=sequence_parallel)

    return build


def _block(*, sequence_parallel: bool) -> Any:
    def build(case: Case, mesh: Any) -> KernelBlock:
        group = mesh["tp"].get_group()
        return KernelBlock(**block_dims(case), group=group, sequence_parallel=sequence_parallel)

    return build


def _loss(*, upcast: bool) -> Any:
    def build(case: Case, mesh: Any) -> KernelCrossEntropy:
        dims = {name: case[name] for name in ("vocab", "width", "reduction")}
        return KernelCrossEntropy(**dims, upcast=upcast, group=mesh["tp"].get_group())

    return build


mlp_kernels = Check(specs.mlp(), _mlp(sequence_parallel=False), communication=True)
mlp_kernels_sp = Check(
    specs.mlp(sequence_parallel=True), _mlp(sequence_parallel=True), communication=True
)
block_kernels = Check(specs.block(), _block(sequence_parallel=False), communication=True)
block_kernels_sp = Check(
    specs.block(sequence_parallel=True), _block(sequence_parallel=True), communication=True
)
cross_entropy_kernels = Check(
    specs.cross_entropy(padded=True), _loss(upcast=False), communication=True
)
cross_entropy_kernels_upcast = Check(
    specs.cross_entropy(upcast=True), _loss(upcast=True), communication=True
)


all_gather_linear_kernels = Check(
    specs.all_gather_linear(),
    fused(KernelFusedColumnLinear),
    communication=True,
    witness=a_launch_per_piece,
)
linear_reduce_scatter_kernels = Check(
    specs.linear_reduce_scatter(),
    fused(KernelFusedRowLinear),
    communication=True,
    witness=a_launch_per_piece,
)
