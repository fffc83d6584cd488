"""Candidates that go wrong as processes, not as arithmetic: for the tests of the engines."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import torch
import torch.distributed as dist

from fixtures.parallel.linear import RowLinear
from tpcheck import Case, Check, specs


class _Row(RowLinear):
    """A correct row linear, with a place where one rank can misbehave before its all-reduce."""

    def sum_output(self, partial: torch.Tensor) -> torch.Tensor:
        if self.rank == self.degree - 1:
            self.misbehave(partial)
        return super().sum_output(partial)

    def misbehave(self, partial: torch.Tensor) -> None:
        """Nothing: this one is correct."""


class OneRankRaises(_Row):
    def misbehave(self, partial: torch.Tensor) -> None:
        raise ValueError("deliberate: one rank raises")


class OneRankIsKilled(_Row):
    def misbehave(self, partial: torch.Tensor) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class OneRankHangs(_Row):
    def misbehave(self, partial: torch.Tensor) -> None:
        time.sleep(3600)


class OneRankSpins(_Row):
    def misbehave(self, partial: torch.Tensor) -> None:
        while True:
            pass


class OneRankSkipsTheCollective(RowLinear):
    def sum_output(self, partial: torch.Tensor) -> torch.Tensor:
        return partial if self.rank == self.degree - 1 else super().sum_output(partial)


class ReduceOpsDiffer(_Row):
    def sum_output(self, partial: torch.Tensor) -> torch.Tensor:
        out = partial.clone()
        op = dist.ReduceOp.MAX if self.rank == 0 else dist.ReduceOp.SUM
        dist.all_reduce(out, op=op, group=self.group)
        return out


class ShapesDiffer(_Row):
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


def check(cls: type) -> Check:
    """The check of one of these classes against the row-linear spec."""

    def build(case: Case, mesh: Any) -> Any:
        group = mesh["tp"].get_group()
        return cls(case["in_features"], case["out_features"], group=group, bias=case["bias"])

    return Check(specs.row_linear(), build, name=cls.__name__)


CASE = Case(
    dims={"batch": 1, "seq": 2, "in_features": 4, "out_features": 3, "bias": False}, mesh={"tp": 2}
)
