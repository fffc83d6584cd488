"""Modules of a user, as `tpcheck init` meets them: plain ones with a plan, some that are built on
each rank, and wrong ones."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from fixtures.parallel.linear import ColumnLinear, RowLinear


class MLP(nn.Module):
    """x [..., 8] → [..., 8]."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(torch.relu(self.up(x)))


class Normed(MLP):
    """With a norm in front."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.norm(x))


class InHeads(MLP):
    """Heads of 8: two ranks have one each."""

    def forward(self, x: Tensor) -> Tensor:
        heads = self.up(x).unflatten(-1, (-1, 8))
        return self.down(torch.relu(heads).flatten(-2))


class Gated(nn.Module):
    """gate and up in one, of which the plan below forgets what comes after them."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(torch.relu(self.gate_up(x)))


def gated_in_part(mesh: Any) -> nn.Module:
    plan = {"gate_up": ColwiseParallel(output_layouts=Replicate()), "dwn": RowwiseParallel()}
    return parallelize_module(Gated(), mesh["tp"], plan)


PLAN = {"up": ColwiseParallel(), "down": RowwiseParallel()}
MISSPELT = {"up": ColwiseParallel(), "dwn": RowwiseParallel()}
SEQUENCE = {
    "norm": SequenceParallel(),
    "up": ColwiseParallel(input_layouts=Shard(1)),
    "down": RowwiseParallel(output_layouts=Shard(1)),
}


class Parallel(nn.Module):
    """The MLP of layers that communicate by themselves."""

    row: type[nn.Module] = RowLinear

    def __init__(self, group: Any) -> None:
        super().__init__()
        self.up = ColumnLinear(8, 16, group=group, bias=True)
        self.down = self.row(16, 8, group=group, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(torch.relu(self.up(x)))


class Alone(RowLinear):
    """Without the all-reduce."""

    bias: nn.Parameter

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight, self.bias / self.degree)


class Wrong(Parallel):
    row = Alone


def by_mesh(mesh: Any) -> nn.Module:
    return Parallel(mesh.get_group())


def only_two(mesh: Any) -> nn.Module:
    if mesh.size() != 2:
        raise ValueError("two ranks")
    return by_mesh(mesh)


class Spread(Parallel):
    """Its argument is a process group, and neither its name nor an annotation says so."""

    def __init__(self, where: Any) -> None:
        super().__init__(where)


def over(where: Any) -> nn.Module:
    """The same of a mesh."""
    return Parallel(where.get_group())


def annotated(where: ProcessGroup) -> nn.Module:
    return Parallel(where)


def on_mesh(group: DeviceMesh) -> nn.Module:
    return Parallel(group.get_group())


class Split(nn.Module):
    """x [..., 8] → [..., 16 / ranks]: of its argument it asks what both a mesh and a group say."""

    def __init__(self, ranks: Any) -> None:
        super().__init__()
        self.up = nn.Linear(8, 16 // ranks.size())

    def forward(self, x: Tensor) -> Tensor:
        return self.up(x)


class ByName(Parallel):
    """Its group has a default before it, and is given by its name."""

    def __init__(self, hidden: int = 8, *, tp_group: Any) -> None:
        super().__init__(tp_group)


def perhaps(hidden: int = 8, mesh: DeviceMesh | None = None) -> nn.Module:
    """Whole without a mesh."""
    return MLP() if mesh is None else parallelize_module(MLP(), mesh, PLAN)


class SplitOver(Split):
    def __init__(self, tp_group: Any) -> None:
        super().__init__(tp_group)


def of_hidden(hidden: int) -> nn.Module:
    return nn.Linear(hidden, hidden)


def of_layers(layers: Any) -> nn.Module:
    """It is a number, of which this makes nothing."""
    return MLP()


def of_sizes(sizes: Any) -> nn.Module:
    return nn.Linear(sizes.hidden, sizes.hidden)


def huge() -> nn.Module:
    """4 TB."""
    return nn.Linear(2**20, 2**20, bias=False)


def many(group: Any) -> nn.Module:
    """The same in pieces of 64 MB, which nobody fills."""
    return nn.ParameterList([nn.Parameter(torch.empty(2**12, 2**12)) for _ in range(64000)])


class Tokens(nn.Module):
    """ids [B, S] → [B, S, 12]: an embedding and a layer that takes what it gives."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 12)
        self.layers = nn.ModuleList([nn.Linear(12, 12) for _ in range(2)])

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        return x


GATHERED = {"layers.*": ColwiseParallel()}


class Odd(nn.Module):
    """What nobody guesses."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8, 8))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x[:3, :7] @ y


def sized(hidden: int, inner: int) -> nn.Module:
    return nn.Linear(hidden, inner)


def number() -> int:
    return 3


def raises(group: Any) -> nn.Module:
    raise ValueError("heads=3 do not divide")


def llama() -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=4, vocab_size=32,
    )  # fmt: skip


def mistral() -> Any:
    """Of the released size, 7 B parameters, with 8 K/V heads for 32 heads."""
    from transformers import MistralConfig

    return MistralConfig(sliding_window=7)


class ByKeyword(MLP):
    """Takes its input by keyword alone."""

    def forward(self, *, x: Tensor) -> Tensor:
        return super().forward(x)


def over_mesh_of_its_own(group: ProcessGroup) -> nn.Module:
    """Its axis has another name than `tp`."""
    mesh = DeviceMesh.from_group(group, "cpu", mesh_dim_names=("model",))
    return parallelize_module(MLP(), mesh, PLAN)
