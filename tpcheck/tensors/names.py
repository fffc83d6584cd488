"""Names of parameters as the reference has them, whatever the candidate was wrapped in.

`torch.compile`, activation checkpointing and FSDP1 each put a module of their own around the
user's, and its attribute into every name below. The reference knows none of them.
"""

from __future__ import annotations

from torch import Tensor, nn

# torch.compile's OptimizedModule, CheckpointWrapper (and OffloadWrapper), FullyShardedDataParallel
WRAPPERS = frozenset({"_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"})


def unwrapped(name: str) -> str:
    """`blocks.0._checkpoint_wrapped_module.mlp.up.weight` → `blocks.0.mlp.up.weight`."""
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def parameters_of(module: nn.Module) -> dict[str, nn.Parameter]:
    """Parameters by the reference's names; tied ones under each of theirs."""
    return {unwrapped(name): p for name, p in module.named_parameters(remove_duplicate=False)}


def buffers_of(module: nn.Module) -> dict[str, Tensor]:
    """Buffers by the reference's names; one under several names once."""
    return {unwrapped(name): b for name, b in module.named_buffers()}


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by the reference's names; tied ones under each of theirs."""
    buffers = dict(module.named_buffers(remove_duplicate=False))
    return {**parameters_of(module), **{unwrapped(name): b for name, b in buffers.items()}}
