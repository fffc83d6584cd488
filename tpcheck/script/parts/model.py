"""A model on one of several ranks: built, loaded, run, compared."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

from tpcheck.script.parts.tensors import Expected, dense, leaf, named

#: Of each rank what it holds: of each dim that is cut the indices, in order; None where it has no
#: part at all.
Place = Sequence[Sequence[tuple[int, Sequence[int]]] | None]


@dataclass
class Case:
    """The case, as `build` reads it."""

    dims: Mapping[str, Any]
    mesh: Mapping[str, int]
    dtype: str
    seed: int
    microbatches: int = 1
    step: bool = False
    memory: str = "contiguous"
    magnitude: int = 0
    family: str = "normal"
    integers: bool = False
    gradients: str = "all"
    mode: str = "train"
    saved_at: int = 0

    def __getitem__(self, name: str) -> Any:
        return self.dims[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self.dims.get(name, default)

    @property
    def tp(self) -> int:
        return self.mesh["tp"]

    @property
    def dp(self) -> int:
        return self.mesh.get("dp", 1)

    @property
    def world_size(self) -> int:
        return int(torch.tensor(list(self.mesh.values())).prod())

    def coordinates(self, rank: int) -> dict[str, int]:
        found = {}
        for axis in reversed(list(self.mesh)):
            rank, found[axis] = divmod(rank, self.mesh[axis])
        return {axis: found[axis] for axis in self.mesh}


@dataclass
class Placed:
    """Where the case's tensors are.

    Args:
        params, inputs, outputs: name → its place.
        compared: (kind, name) → its place.
        sums: (kind, name) → mesh axes over which ranks hold terms of it.
        replicas: (kind, name) → groups of ranks that must hold the same bits.
    """

    params: Mapping[str, Place]
    inputs: Mapping[str, Place]
    outputs: Mapping[str, Place]
    compared: Mapping[tuple[str, str], Place]
    sums: Mapping[tuple[str, str], Sequence[str]]
    replicas: Mapping[tuple[str, str], Sequence[Sequence[int]]]


@dataclass
class Functions:
    """What the check gives besides `build`."""

    load: Callable[..., Any] | None = None
    forward: Callable[..., Any] | None = None
    finalize: Callable[..., Any] | None = None


def part(full: Tensor, place: Place) -> Tensor:
    """This rank's part."""
    for dim, indices in place[dist.get_rank()] or []:
        full = full.index_select(dim, torch.tensor(list(indices), dtype=torch.int64))
    return full


def is_dtensor(tensor: Any) -> bool:
    return type(tensor).__name__ == "DTensor" or hasattr(tensor, "full_tensor")


def like(full: Tensor, tensor: Any, place: Place) -> Tensor:
    """A full tensor as another one is held."""
    if not is_dtensor(tensor):
        return part(full, place)
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(full, tensor.device_mesh, tensor.placements)


class Rank:
    """One rank's side of the case.

    Args:
        laid_out: (tensor, name) → the same numbers in the case's memory format.
    """

    def __init__(
        self,
        case: Case,
        placed: Placed,
        functions: Functions,
        laid_out: Callable[[Tensor, str], Tensor],
    ) -> None:
        self.case, self.placed, self.functions, self.laid_out = case, placed, functions, laid_out
        axes = tuple(case.mesh)
        self.mesh = init_device_mesh("cpu", tuple(case.mesh.values()), mesh_dim_names=axes)
        self.rank = dist.get_rank()
        self.actual: dict[tuple[str, str], Any] = {}

    def build(self, candidate: Callable[..., Any], params: Mapping[str, Tensor]) -> Any:
        """The candidate with the case's parameters."""
        torch.manual_seed(self.case.seed)
        random.seed(self.case.seed)
        module = candidate(self.case, self.mesh)
        if not isinstance(module, nn.Module):
            return module
        module.to(getattr(torch, self.case.dtype))
        with torch.no_grad():
            for name, own in tensors_of(module).items():
                if name in params and self.functions.load is None:
                    value = like(params[name], own, self.placed.params[name])
                    assert value.shape == own.shape, f"{name}: {own.shape}, due {value.shape}"
                    own.copy_(value)
            if self.functions.load is not None:
                self.functions.load(module, dict(params))
        return module

    def forward(self, module: Any, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if self.functions.forward is not None:
            return named(self.functions.forward(module, inputs))
        return named(module(*inputs.values()))

    def leaves(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """This rank's part of the inputs."""
        places = self.placed.inputs
        own = {n: t for n, t in inputs.items() if places[n][self.rank] is not None}
        return {n: leaf(self.laid_out(part(t, places[n]), n)) for n, t in own.items()}

    def run(
        self, module: Any, inputs: Mapping[str, Tensor], seeds: Mapping[str, Tensor], m: int
    ) -> None:
        """Forward and backward of microbatch `m`."""
        at = f"@{m}" if m else ""
        leaves = self.leaves(inputs)
        outputs = self.forward(module, leaves)
        self.note("output", outputs, at)
        roots = [n for n, t in outputs.items() if n in seeds and t.requires_grad]
        given = [like(seeds[n], outputs[n], self.placed.outputs[n]) for n in roots]
        given = [
            self.laid_out(t.to(outputs[n].dtype), n) for n, t in zip(roots, given, strict=True)
        ]
        if roots:
            torch.autograd.backward([outputs[n] for n in roots], given)
        self.note("input_grad", {n: t.grad for n, t in leaves.items()}, at)

    def finish(self, module: Any, inputs: Mapping[str, Tensor], rate: float) -> None:
        """Gradients of parameters, and a step."""
        if not isinstance(module, nn.Module):
            return
        if self.functions.finalize is not None:
            self.functions.finalize(module, self.mesh)
        params = {n: t for n, t in tensors_of(module).items() if isinstance(t, nn.Parameter)}
        self.note("param_grad", {n: p.grad for n, p in params.items()})
        if self.case.step and params:
            # of what is still to be summed no step is taken
            stay = {id(p) for n, p in params.items() if self.placed.sums.get(("param_grad", n))}
            with torch.no_grad():
                for p in {id(p): p for p in params.values()}.values():
                    if p.grad is not None and id(p) not in stay:
                        p.add_(p.grad, alpha=-rate)
                self.note("param", {n: p.detach().clone() for n, p in params.items()})
                self.note("output", self.forward(module, self.leaves(inputs)), "@step")
        self.note("param", {unwrapped(n, module): b for n, b in module.named_buffers()})

    def note(self, kind: str, tensors: Mapping[str, Any], at: str = "") -> None:
        for name, tensor in tensors.items():
            loss = kind == "output" and name.rpartition(".")[2] == "loss"
            self.actual["loss" if loss else kind, f"{name}{at}"] = tensor

    def faults(self, expected: Sequence[Expected]) -> list[str]:
        """A line for each wrong tensor of each rank, and for replicas that differ: the same on all
        ranks."""
        found: list[str] = []
        bits: dict[tuple[str, str], bytes] = {}
        for wanted in expected:
            key = wanted.kind, wanted.name
            actual: Any = self.actual.get(key)
            place = self.placed.compared[key]
            if place[self.rank] is None:
                continue
            if actual is not None:
                actual = dense(actual)
            if actual is not None and is_dtensor(actual):
                said = wanted.fault(actual.full_tensor())
            else:
                for axis in self.placed.sums.get(key, ()):
                    assert actual is not None, f"{wanted.name} has no gradient to add up"
                    actual = actual.clone()
                    dist.all_reduce(actual, group=self.mesh[axis].get_group())
                said = wanted.of(partial(part, place=place)).fault(actual)
                bits[key] = b"" if actual is None else bits_of(actual)
            if said is not None:
                found.append(f"{wanted.kind} {wanted.name} on rank {self.rank} {said}")
        everyone: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, (found, bits))
        lines = [line for lines, _ in everyone for line in lines]
        return lines + self._differ([held for _, held in everyone])

    def _differ(self, held: Sequence[Mapping[tuple[str, str], bytes]]) -> list[str]:
        return [
            f"{' '.join(key)}: ranks {list(group)} must hold the same bits, and don't"
            for key, groups in self.placed.replicas.items()
            for group in groups
            if len({held[rank].get(key) for rank in group}) > 1
        ]


def bits_of(tensor: Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by the reference's names."""
    held = [*module.named_parameters(remove_duplicate=False)]
    buffers = [*module.named_buffers(remove_duplicate=False)]
    return {unwrapped(name, module): t for name, t in [*held, *buffers]}


def unwrapped(name: str, module: nn.Module) -> str:
    """A name without what compiling, checkpointing, FSDP and DDP put around modules."""
    wrappers = ("_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module")
    holders = {"DistributedDataParallel", "DataParallel", "Float16Module"}
    kept: list[str] = []
    owner: Any = module
    for word in name.split("."):
        held = word == "module" and holders & {kind.__name__ for kind in type(owner).__mro__}
        if word not in wrappers and not held:
            kept.append(word)
        owner = getattr(owner, "_modules", {}).get(word)
    return ".".join(kept)
