"""Megatron-core modules, on ranks that already run: its global state over our mesh, its partition
attributes read as layout (`tpcheck.tensors.live` does that), its finalize step.

Megatron-core asks for CUDA in places where it needs none. On ranks without CUDA two of its ways
are replaced, for the time of a case and nowhere else (and a third without Transformer Engine):

- `torch.cuda.current_device()`, by which it says where buffers go (the gather and scatter of
  sequence parallelism, the global memory buffer, rotary frequencies): it answers `cpu`.
- the tracker of CUDA random states, which forks around attention dropout even where dropout is
  zero: its own `inference_rng_tracker`, which does nothing. Dropout itself can't be verified so.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from tpcheck.case import Case
from tpcheck.cleanup import at_case_end
from tpcheck.errors import EngineUnavailable, InvalidArgument

Build = Callable[[Case, int], nn.Module]

# Groups that hold a rank's TP peers, as long as all other degrees are 1.
_TENSOR_PARALLEL = (
    "_TENSOR_MODEL_PARALLEL_GROUP",
    "_MODEL_PARALLEL_GROUP",
    "_TENSOR_AND_CONTEXT_PARALLEL_GROUP",
    "_EXPERT_TENSOR_PARALLEL_GROUP",
    "_EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP",
    "_EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP",
)
_DATA_PARALLEL = (
    "_DATA_PARALLEL_GROUP",
    "_DATA_PARALLEL_GROUP_WITH_CP",
    "_INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP",
    "_EXPERT_DATA_PARALLEL_GROUP",
    "_INTRA_PARTIAL_EXPERT_DATA_PARALLEL_GROUP",
)
# Groups of all ranks: a case's mesh has no axes beside TP and DP. Routers of experts ask for them.
_EVERYONE = (
    "_INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP",
    "_TENSOR_AND_DATA_PARALLEL_GROUP",
    "_TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP",
)
# Groups of this rank alone.
_ALONE = (
    "_PIPELINE_MODEL_PARALLEL_GROUP",
    "_CONTEXT_PARALLEL_GROUP",
    "_EXPERT_MODEL_PARALLEL_GROUP",
    "_EMBEDDING_GROUP",
    "_POSITION_EMBEDDING_GROUP",
)


def candidate(build: Build) -> Callable[[Case, DeviceMesh], nn.Module]:
    """The candidate of a `Check`: `build(case, tp)` with Megatron's state over `mesh["tp"]`.

    Args:
        build: (case, tensor_model_parallel_size) → the module, built with
            `use_cpu_initialization=True` and `perform_initialization=True` (the partition
            attributes come from there).
    """

    def on_rank(case: Case, mesh: DeviceMesh) -> nn.Module:
        if threading.current_thread() is not threading.main_thread():
            raise EngineUnavailable(
                "Megatron-core keeps its groups in global variables, so its ranks can't share a "
                "process: use --engine gloo"
            )
        stack = contextlib.ExitStack()
        at_case_end(stack.close)
        stack.enter_context(_state(mesh))
        return build(case, mesh["tp"].size())

    return on_rank


def reference(build: Build) -> Callable[[Case], nn.Module]:
    """The reference of a `Spec`: the same module at degree 1, in the driver.

    Megatron's state, over a process group of one that sends nothing, is put in place while the
    module is built and during each forward.
    """

    def in_driver(case: Case) -> nn.Module:
        with _state(None):
            module = build(case, 1)
        under_way: list[contextlib.ExitStack] = []  # forwards of this module

        def enter(module: nn.Module, args: Any) -> None:
            stack = contextlib.ExitStack()
            stack.enter_context(_state(None))
            under_way.append(stack)

        def leave(module: nn.Module, args: Any, output: Any) -> None:
            under_way.pop().close()

        module.register_forward_pre_hook(enter)
        module.register_forward_hook(leave, always_call=True)
        return module

    return in_driver


def finalize(module: nn.Module, mesh: DeviceMesh) -> None:
    """The TP part of Megatron's `finalize_model_grads`, for `Spec(finalize=…)`: gradients of
    parameters marked `sequence_parallel`, and of q and k norms, are summed over the TP group."""
    from megatron.core.distributed.finalize_model_grads import (
        _allreduce_non_tensor_model_parallel_grads,
    )
    from megatron.core.utils import get_model_config

    _allreduce_non_tensor_model_parallel_grads(
        [_Chunk(module)], get_model_config(module), mesh["tp"].get_group()
    )


class _Chunk(nn.Module):
    """A model chunk as Megatron's finalize step wants it: wrapped, with a `ddp_config`."""

    def __init__(self, module: nn.Module) -> None:
        from megatron.core.distributed import DistributedDataParallelConfig

        super().__init__()
        self.module = module
        self.ddp_config = DistributedDataParallelConfig()


@contextlib.contextmanager
def _state(mesh: DeviceMesh | None) -> Iterator[None]:
    """Megatron's global state over `mesh` (None: a world of one); what was there comes back."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # it warns of every optional package that is not there
        from megatron.core import parallel_state
        from megatron.core.tensor_parallel import random

        kept = [(parallel_state, _globals(parallel_state)), (random, _globals(random))]
        current_device = torch.cuda.current_device
        stack.callback(_restore, kept, current_device)
        _without_transformer_engine()
        if mesh is None:
            stack.enter_context(_world_of_one())
        vars(parallel_state).update(_groups(mesh))
        parallel_state._set_global_memory_buffer()
        if mesh is None or mesh.device_type == "cpu":  # whether there is a GPU or not
            random.initialize_rng_tracker(inference_rng_tracker=True, force_reset=True)
            torch.cuda.current_device = lambda: torch.device("cpu")  # type: ignore[assignment,return-value]
        yield


def _without_transformer_engine() -> None:
    """Defines the name by which routers of experts ask for a product of Transformer Engine: 0.16.1
    leaves it undefined where the package is not installed, and takes torch's where it is None
    (docs/findings/megatron-core-router-without-te.md).
    It stays: a reference's backward comes when its forward has left the state."""
    from megatron.core.transformer.moe import moe_utils

    if not hasattr(moe_utils, _PRODUCT):
        setattr(moe_utils, _PRODUCT, None)


_PRODUCT = "te_general_gemm"


def _restore(kept: list[tuple[Any, dict[str, Any]]], current_device: Any) -> None:
    torch.cuda.current_device = current_device
    for module, values in kept:
        vars(module).update(values)


@contextlib.contextmanager
def _world_of_one() -> Iterator[None]:
    """A default process group of this process alone: Megatron does nothing without one."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if dist.is_initialized():
        raise InvalidArgument(
            "Megatron's reference needs a process without torch.distributed: this one has called "
            "init_process_group already"
        )
    hook = sys.excepthook  # c10d puts its own in front of it each time
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()
        sys.excepthook = hook


def _globals(module: Any) -> dict[str, Any]:
    return {k: v for k, v in vars(module).items() if k.startswith("_") and k.isupper()}


def _groups(mesh: DeviceMesh | None) -> dict[str, Any]:
    """parallel_state's variables, with every degree but TP's and DP's at 1."""
    # no backend: a collective over it raises
    alone = dist.ProcessGroup(0, 1)  # type: ignore[call-arg]
    has_dp = mesh is not None and "dp" in (mesh.mesh_dim_names or ())
    tp = dist.group.WORLD if mesh is None else mesh["tp"].get_group()
    dp = mesh["dp"].get_group() if mesh is not None and has_dp else alone
    return {
        **dict.fromkeys(_TENSOR_PARALLEL, tp),
        **dict.fromkeys(_DATA_PARALLEL, dp),
        **dict.fromkeys(_ALONE, alone),
        **dict.fromkeys(_EVERYONE, dist.group.WORLD),
        "_TENSOR_MODEL_PARALLEL_GLOBAL_RANKS": dist.get_process_group_ranks(tp),
        "_MPU_PIPELINE_MODEL_PARALLEL_RANK": 0,
        "_MPU_PIPELINE_MODEL_PARALLEL_WORLD_SIZE": 1,
        "_GLOBAL_MEMORY_BUFFER": None,
    }
