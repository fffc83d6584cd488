"""What a rank may keep in memory beside its shards, and what it may not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from fixtures.parallel.linear import ColumnLinear, RowLinear
from fixtures.parallel.sharding import empty_parameter, load_full
from tests import candidates
from tpcheck import Case, specs
from tpcheck.engines.engine import Engine
from tpcheck.evidence import Misheld
from tpcheck.runner.runner import Runner
from tpcheck.verdict import CaseResult, Verdict
from tpcheck.vocabulary import Fault

LARGE = Case(dims={"batch": 1, "seq": 2, "in_features": 16, "out_features": 8, "bias": True})


class Keeps(RowLinear):
    """Each gradient is a view into a storage of `size(elements)` elements, from `start` on."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for parameter in self.parameters():
            parameter.register_post_accumulate_grad_hook(self.keep)

    def size(self, elements: int) -> int:
        return elements

    def keep(self, parameter: Tensor) -> None:
        assert parameter.grad is not None
        storage = parameter.grad.new_zeros(self.size(parameter.numel()))
        own = storage[: parameter.numel()].view_as(parameter)
        parameter.grad = own.copy_(parameter.grad)


class Padded(Keeps):
    def size(self, elements: int) -> int:
        return elements + 32


class Doubled(Keeps):
    def size(self, elements: int) -> int:
        return 2 * elements


class Copies(Keeps):
    """Behind each gradient is the same once more."""

    def keep(self, parameter: Tensor) -> None:
        assert parameter.grad is not None
        storage = torch.cat([parameter.grad.flatten()] * 2)
        parameter.grad = storage[: parameter.numel()].view_as(parameter)


class Bucket(RowLinear):
    """All gradients are views into one storage, as large as those of whole parameters."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        count = sum(p.numel() for p in self.parameters())
        self.bucket = torch.zeros(4 * count)
        for parameter in self.parameters():
            parameter.register_post_accumulate_grad_hook(self.keep)

    def keep(self, parameter: Tensor) -> None:
        assert parameter.grad is not None
        self.bucket = self.bucket.to(parameter.dtype)
        start = 0 if parameter is self.weight else self.weight.numel()
        own = self.bucket[start : start + parameter.numel()].view_as(parameter)
        parameter.grad = own.copy_(parameter.grad)


class Remembers(RowLinear):
    """Keeps its shard, what came in and a table in attributes, alone and in containers."""

    def forward(self, x: Tensor) -> Tensor:
        self.seen = [x.detach(), (x.detach().mean(), "mean")]
        self.tables = {"shard": self.weight.detach().clone(), "positions": torch.arange(8)}
        self.last = torch.ones(8, 16)
        return super().forward(x)


class Odd(RowLinear):
    """Keeps what has no storage, or no numbers, of its own."""

    def forward(self, x: Tensor) -> Tensor:
        self.kept = [*self.parameters(), torch.empty(8, 16, device="meta", dtype=x.dtype)]
        self.sparse = torch.zeros(8, 16, dtype=x.dtype).to_sparse()
        return super().forward(x)


class Mine(ColumnLinear):
    """Keeps its own parameters in a list."""

    def forward(self, x: Tensor) -> Tensor:
        self.mine = list(self.parameters())
        return super().forward(x)


class OfTheWhole(Keeps):
    """Gradients are gathered, and each rank's is a view of its part."""

    def keep(self, parameter: Tensor) -> None:
        if parameter is self.bias:
            return
        assert parameter.grad is not None
        parts = [torch.empty_like(parameter.grad) for _ in range(self.degree)]
        dist.all_gather(parts, parameter.grad.contiguous(), group=self.group)
        parameter.grad = torch.cat(parts)[self.rank * 8 : self.rank * 8 + 8]


class Gathers(RowLinear):
    """Keeps the whole weight in a list."""

    def local_part(self, name: str, full: Tensor) -> Tensor:
        if name == "weight":
            self.given = [full]
        return super().local_part(name, full)


class OnTheParameter(Gathers):
    """Keeps it in an attribute of the parameter."""

    def local_part(self, name: str, full: Tensor) -> Tensor:
        part = super().local_part(name, full)
        if name == "weight":
            self.weight.copies = self.given  # type: ignore[attr-defined]
            self.given = []
        return part


class Registers(Gathers):
    """Keeps it in a buffer of its own, beside a table of levels on which all weights may lie."""

    def local_part(self, name: str, full: Tensor) -> Tensor:
        part = super().local_part(name, full)
        if name == "weight":
            self.register_buffer("whole", self.given.pop().clone(), persistent=False)
        return part


class Quantised(RowLinear):
    """Has a table of levels, all numbers of the whole weight among them."""

    def local_part(self, name: str, full: Tensor) -> Tensor:
        if name == "weight":
            self.register_buffer("levels", full.flatten().sort().values, persistent=False)
        return super().local_part(name, full)


class Whole(RowLinear):
    """Each rank has the whole weight, and multiplies by its part."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.weight = empty_parameter(self.weight.shape[0], self.weight.shape[1] * self.degree)

    def multiply(self, x: Tensor) -> Tensor:
        return x @ super().local_part("weight", self.weight).T


def run(engine: Engine, cls: type, **parts: Any) -> CaseResult:
    check = replace(candidates.check(cls), communication=False, **parts)
    return Runner(check, engine).run(LARGE)


@pytest.mark.parametrize("cls", [Keeps, Padded, Doubled, Copies, Bucket, Remembers, Odd])
def test_padding_buckets_and_what_is_not_whole_are_no_faults(gloo: Engine, cls: type) -> None:
    result = run(gloo, cls)
    assert result.verdict is Verdict.PASS, result.mismatches
    held, due = result.bytes["gradients"]
    assert due == (8 * 8 + 8) * 8
    more = {Padded: 2 * 32 * 8, Doubled: due, Copies: due, Bucket: 3 * due}
    assert held == due + more.get(cls, 0)


def test_of_a_parameter_that_is_whole_a_part_is_due(gloo: Engine) -> None:
    result = run(gloo, Whole)
    assert {m.detail.fault for m in result.mismatches if isinstance(m.detail, Misheld)} == {
        Fault.WHOLE
    }
    whole, part = (8 * 16 + 8) * 8, (8 * 8 + 8) * 8
    assert result.bytes["parameters"] == result.bytes["gradients"] == (whole, part)


def test_a_gradient_that_is_a_view_of_the_whole_is_one(gloo: Engine) -> None:
    result = run(gloo, OfTheWhole)
    assert {(m.tensor, m.rank) for m in result.mismatches} == {("weight", 0), ("weight", 1)}
    details = {m.detail for m in result.mismatches}
    assert details == {Misheld(Fault.STORAGE, storage=1024, expected=512, what="gradient")}


@pytest.mark.parametrize("rows", [1, 2])
def test_a_rank_that_rightly_has_all_may_keep_it(gloo: Engine, rows: int) -> None:
    """A column of one row: the first rank has all of the weight, the others none of it."""
    check = replace(candidates.check(Mine), spec=specs.column_linear())
    case = replace(LARGE, dims={**LARGE.dims, "in_features": 40, "out_features": rows})
    result = Runner(replace(check, communication=False), gloo).run(case)
    assert result.verdict is Verdict.PASS, result.mismatches


def test_so_is_a_whole_weight_in_an_attribute(gloo: Engine) -> None:
    result = run(gloo, Gathers, load=load_full)
    whole = {m.detail.what for m in result.mismatches if isinstance(m.detail, Misheld)}
    assert whole == {"attribute given"}
    assert {(m.tensor, m.rank) for m in result.mismatches} == {("weight", 0), ("weight", 1)}
    assert run(gloo, Gathers).verdict is Verdict.PASS  # the harness does not ask it for its part


def test_so_is_one_in_a_buffer_and_a_table_of_its_numbers_is_not(gloo: Engine) -> None:
    for cls, where in ((Registers, "buffer whole"), (OnTheParameter, "attribute weight.copies")):
        result = run(gloo, cls, load=load_full)
        whole = {m.detail.what for m in result.mismatches if isinstance(m.detail, Misheld)}
        assert whole == {where}
    assert run(gloo, Quantised, load=load_full).verdict is Verdict.PASS
