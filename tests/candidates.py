"""What tests check: `build(case, mesh)` of a linear layer, the sizes of small cases, and candidates
that go wrong as processes, not as arithmetic."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from fixtures.parallel.block import Stack
from fixtures.parallel.linear import RowLinear
from tpcheck import Case, Check, specs
from tpcheck.specs.block import block_dims

if TYPE_CHECKING:
    from tpcheck.check import Candidate


def linear(cls: type, **options: Any) -> Candidate:
    """`build(case, mesh)` of a class with the arguments of a row or column linear."""

    def build(case: Case, mesh: Any) -> Any:
        group = mesh["tp"].get_group()
        sizes = case["in_features"], case["out_features"]
        return cls(*sizes, group=group, bias=case["bias"], **options)

    return build


def stack(case: Case, mesh: Any) -> Stack:
    """The correct stack of blocks, for a test to make wrong."""
    dims: Any = block_dims(case)
    return Stack(case["layers"], **dims, group=mesh["tp"].get_group())


def check(cls: type) -> Check:
    """The check of a row linear's class against the row-linear spec."""
    return Check(specs.row_linear(), linear(cls), name=cls.__name__)


def linear_dims(
    in_features: int = 4, out_features: int = 3, *, batch: int = 1, seq: int = 2, bias: bool = False
) -> dict[str, Any]:
    """The dims of a case of a linear."""
    sizes = {"batch": batch, "seq": seq, "in_features": in_features, "out_features": out_features}
    return {**sizes, "bias": bias}


#: Of a decoder with grouped heads: `DECODER | {"layers": 4}`.
DECODER = {
    "batch": 2, "seq": 3, "layers": 2, "hidden": 4, "kv_heads": 2, "heads": 4, "head_dim": 2,
    "intermediate": 4, "bias": True,
}  # fmt: skip

#: Of a decoder of the planned models, with a vocabulary.
PLANNED = DECODER | {
    "batch": 1, "seq": 4, "vocab": 8, "hidden": 8, "head_dim": 4, "intermediate": 12, "bias": False,
}  # fmt: skip

#: Of a transformer block, in which every rank of eight has a head of its own.
BLOCK = {
    "batch": 2, "seq": 8, "hidden": 16, "heads": 8, "kv_heads": 8, "head_dim": 4,
    "intermediate": 16, "activation": "swiglu", "norm": "rms", "bias": False, "qk_norm": False,
    "rotary": True, "causal": True,
}  # fmt: skip

#: Of two small blocks.
STACK = BLOCK | {
    "layers": 2, "batch": 1, "seq": 3, "hidden": 6, "heads": 4, "kv_heads": 4, "intermediate": 4,
    "qk_norm": True,
}  # fmt: skip

CASE = Case(dims=linear_dims(), mesh={"tp": 2})


# ---- candidates that go wrong as processes


class Row(RowLinear):
    """A correct row linear, with a place where one rank can misbehave before its all-reduce."""

    def sum_output(self, partial: torch.Tensor) -> torch.Tensor:
        if self.rank == self.degree - 1:
            self.misbehave(partial)
        return super().sum_output(partial)

    def misbehave(self, partial: torch.Tensor) -> None:
        """Nothing: this one is correct."""


class OneRankRaises(Row):
    def misbehave(self, partial: torch.Tensor) -> None:
        raise ValueError("deliberate: one rank raises")


class OneRankRaisesWhileItsPeersCompute(OneRankRaises):
    def sum_output(self, partial: torch.Tensor) -> torch.Tensor:
        if self.rank != self.degree - 1:
            begun = time.process_time()
            while time.process_time() < begun + 1.5:
                pass
        return super().sum_output(partial)


class OneRankIsKilled(Row):
    def misbehave(self, partial: torch.Tensor) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class OneRankHangs(Row):
    def misbehave(self, partial: torch.Tensor) -> None:
        time.sleep(3600)


class OneRankSpins(Row):
    def misbehave(self, partial: torch.Tensor) -> None:
        while True:
            pass


class OneRankSkipsTheCollective(RowLinear):
    def sum_output(self, partial: torch.Tensor) -> torch.Tensor:
        return partial if self.rank == self.degree - 1 else super().sum_output(partial)


class ReduceOpsDiffer(Row):
    def sum_output(self, partial: torch.Tensor) -> torch.Tensor:
        out = partial.clone()
        op = dist.ReduceOp.MAX if self.rank == 0 else dist.ReduceOp.SUM
        dist.all_reduce(out, op=op, group=self.group)
        return out


class ShapesDiffer(Row):
    def misbehave(self, partial: torch.Tensor) -> None:
        dist.all_reduce(torch.zeros(7, dtype=partial.dtype), group=self.group)


class OrdersDiffer(RowLinear):
    def sum_output(self, partial: torch.Tensor) -> torch.Tensor:
        first, second = (self._gather, self._sum) if self.rank == 0 else (self._sum, self._gather)
        first(partial)
        second(partial)
        return super().sum_output(partial)

    def _gather(self, partial: torch.Tensor) -> None:
        parts = [torch.empty_like(partial) for _ in range(self.degree)]
        dist.all_gather(parts, partial.contiguous(), group=self.group)

    def _sum(self, partial: torch.Tensor) -> None:
        dist.all_reduce(partial.clone(), group=self.group)


class SplitsDiffer(RowLinear):
    """The last rank sends a row more to rank 0 than that one expects."""

    def sum_output(self, partial: torch.Tensor) -> torch.Tensor:
        rows = [1] * self.degree
        sent = [2 if self.rank == self.degree - 1 else 1, *rows[1:]]
        x, y = partial.new_zeros(sum(sent), 3), partial.new_zeros(self.degree, 3)
        dist.all_to_all_single(y, x, rows, sent, group=self.group)
        return super().sum_output(partial)


class ExchangeOrReduction(RowLinear):
    """Rank 0 is in an all-to-all of one group, the others in a reduction of its twin."""

    def sum_output(self, partial: torch.Tensor) -> torch.Tensor:
        twin = dist.new_group(dist.get_process_group_ranks(self.group))
        out = partial.new_zeros(self.degree)
        if self.rank == 0:
            dist.all_to_all_single(out, torch.ones_like(out), group=twin)
        return super().sum_output(partial)


class GroupsDiffer(RowLinear):
    """Rank 0 reduces over the world, the others over the TP group: nobody can go on."""

    def sum_output(self, partial: torch.Tensor) -> torch.Tensor:
        out = partial.clone()
        dist.all_reduce(out, group=dist.group.WORLD if dist.get_rank() == 0 else self.group)
        return out


class TwinGroupsDiffer(RowLinear):
    """Two groups of the same ranks, and rank 0 takes the other one."""

    def sum_output(self, partial: torch.Tensor) -> torch.Tensor:
        twin = dist.new_group(dist.get_process_group_ranks(self.group))
        out = partial.clone()
        dist.all_reduce(out, group=twin if self.rank == 0 else self.group)
        return out


class CrossingButAsynchronous(RowLinear):
    """Ranks start reductions over two groups in opposite orders and wait for none in between:
    nobody is ever stuck."""

    def sum_output(self, partial: torch.Tensor) -> torch.Tensor:
        twin = dist.new_group(dist.get_process_group_ranks(self.group))
        groups = [self.group, twin] if self.rank == 0 else [twin, self.group]
        outs = {group: partial.clone() for group in groups}
        if self.rank:
            time.sleep(0.2)  # rank 0 has long started its own
        works = [dist.all_reduce(outs[group], group=group, async_op=True) for group in groups]
        for work in works:
            work.wait()
        return outs[self.group]
