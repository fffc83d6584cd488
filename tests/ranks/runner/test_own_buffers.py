"""Buffers that forwards write, where data-parallel ranks share gradients: each rank's are those of
its own data, or shared in one of the ways that there are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from tpcheck import Case, Check, Layout, Replicate, Spec, Training
from tpcheck.engines.engine import Engine
from tpcheck.runner.runner import Runner
from tpcheck.verdict import CaseResult, Verdict
from tpcheck.vocabulary import Kind, Unjudged

KEY = Kind.PARAM, "seen"


Keeps = Callable[[Tensor, Tensor], Tensor]  # (what there was, the input) → what there is


def mean(seen: Tensor, x: Tensor) -> Tensor:
    return seen.lerp(x.mean(0), 0.25)


def largest(seen: Tensor, x: Tensor) -> Tensor:
    return torch.maximum(seen, x.amax(0))


def count(seen: Tensor, x: Tensor) -> Tensor:
    return seen + (x > 0).sum(0)


def rows(seen: Tensor, x: Tensor) -> Tensor:
    return seen + len(x)


def running(seen: Tensor, x: Tensor) -> Tensor:
    return 0.75 * seen + 0.25 * (x > 0).sum(0)


class Scaled(nn.Module):
    """Multiplies, and keeps something of what it was given; it may `read` that."""

    def __init__(self, width: int, keeps: Keeps = mean, *, reads: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.register_buffer("seen", torch.zeros(width))
        self.keeps, self.reads = keeps, reads

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.seen.copy_(self.keeps(self.seen, x))
        return x * self.weight * (self.seen.clone() if self.reads else 1.0)


class Group:
    """The dp group of the case that runs."""

    group: Any = None

    @classmethod
    def sum(cls, tensor: Tensor, op: Any = dist.ReduceOp.SUM) -> Tensor:
        tensor = tensor.clone()
        dist.all_reduce(tensor, op=op, group=cls.group)
        return tensor

    @classmethod
    def first(cls, tensor: Tensor) -> Tensor:
        tensor = tensor.clone()
        dist.broadcast(tensor, dist.get_process_group_ranks(cls.group)[0], group=cls.group)
        return tensor

    @classmethod
    def rank(cls) -> int:
        return dist.get_rank(cls.group)


Change = Callable[[Tensor, Tensor], Tensor]  # (before, after this forward) → what it leaves


class Changed(Scaled):
    """The same, which leaves something else."""

    def __init__(
        self, width: int, keeps: Keeps, before: Callable[[Tensor], Tensor], after: Change
    ) -> None:
        super().__init__(width, keeps)
        self.before, self.after = before, after

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.seen.copy_(self.before(self.seen))
        old, y = self.seen.clone(), super().forward(x)
        with torch.no_grad():
            self.seen.copy_(self.after(old, self.seen))
        return y


def finalize(module: nn.Module, mesh: Any) -> None:
    grad = module.weight.grad
    dist.all_reduce(grad, group=mesh["dp"].get_group())
    grad.div_(mesh["dp"].size())


def spec(keeps: Keeps = mean, *, reads: bool = False, **more: Any) -> Spec:
    return Spec(
        "scaled",
        lambda space: None,
        lambda case: Scaled(case["width"], keeps, reads=reads),
        lambda case, draw: {"x": draw("x", case["rows"], case["width"])},
        lambda case: Layout(params={"*": Replicate()}),
        dp_gradients="mean",
        finalize=finalize,
        **more,
    )


def case(**more: Any) -> Case:
    about = {"mesh": {"dp": 2, "tp": 2}, "dtype": "float64", "dims": {"rows": 3, "width": 5}}
    return Case(**{**about, **more})


def as_it_is(seen: Tensor) -> Tensor:
    return seen


def its_own(old: Tensor, new: Tensor) -> Tensor:
    return new


SHARED: dict[str, tuple[Keeps, Change]] = {
    "the mean": (mean, lambda old, new: Group.sum(new) / 2),
    "the largest": (largest, lambda old, new: Group.sum(new, dist.ReduceOp.MAX)),
    "the sum of what each adds": (count, lambda old, new: old + Group.sum(new - old)),
    "the sum of equal counts": (rows, lambda old, new: old + Group.sum(new - old)),
    "a running sum": (running, lambda old, new: 0.75 * old + Group.sum(new - 0.75 * old)),
    "the first one's": (mean, lambda old, new: Group.first(new)),
}
WRONG: dict[str, Change] = {
    "more": lambda old, new: new + 7,
    "nothing": lambda old, new: old,
    "zeros, on all": lambda old, new: torch.zeros_like(new),
    "the sum of all that each has": lambda old, new: Group.sum(new),
    "one more, of equal counts": lambda old, new: Group.sum(new) / 2 + 1,
    "more, on all": lambda old, new: Group.sum(new) / 2 + 7,
    "by tp": lambda old, new: new + dist.get_rank() % 2,
}
CASES = [case(), case(step=True), case(microbatches=2)]


@pytest.fixture
def ran(gloo: Engine) -> Callable[..., CaseResult]:
    def run(
        after: Change, one: Case, keeps: Keeps = mean, before: Any = as_it_is, **more: Any
    ) -> CaseResult:
        def build(case: Case, mesh: Any) -> nn.Module:
            Group.group = mesh["dp"].get_group()
            return Changed(case["width"], keeps, before, after)

        return Runner(Check(spec(keeps, **more), build), gloo).run(one)

    return run


@pytest.mark.parametrize("one", CASES, ids=Case.describe)
def test_what_its_own_data_leave_is_right_and_judged(ran: Any, one: Case) -> None:
    result = ran(its_own, one)
    assert result.verdict is Verdict.PASS, result.mismatches
    assert result.judged[KEY].complete and result.judged[KEY].elements == 10


@pytest.mark.parametrize("way", SHARED)
@pytest.mark.parametrize("one", CASES, ids=Case.describe)
def test_ways_to_share_them_are_right_and_not_judged(ran: Any, way: str, one: Case) -> None:
    keeps, after = SHARED[way]
    result = ran(after, one, keeps)
    assert result.verdict is Verdict.PASS, result.mismatches
    assert Unjudged.SHARED in result.judged[KEY].why and not result.judged[KEY].blind


@pytest.mark.parametrize("one", CASES, ids=Case.describe)
def test_so_is_a_forward_that_begins_with_those_of_the_first(ran: Any, one: Case) -> None:
    result = ran(its_own, one, before=Group.first)
    assert result.verdict is Verdict.PASS, result.mismatches
    goes_on = one.step or one.microbatches > 1
    assert result.judged[KEY].judged == (5 if goes_on else 10)


@pytest.mark.parametrize("way", WRONG)
@pytest.mark.parametrize("one", CASES, ids=Case.describe)
def test_all_else_is_wrong(ran: Any, way: str, one: Case) -> None:
    result = ran(WRONG[way], one)
    assert result.verdict is Verdict.FAIL
    assert {m.name.base for m in result.mismatches} == {"seen"}


def test_one_rank_s_is_judged_where_nothing_comes_before(ran: Any) -> None:
    def off(old: Tensor, new: Tensor) -> Tensor:
        return new + Group.rank()

    assert ran(off, case()).verdict is Verdict.FAIL
    assert ran(off, case(microbatches=2)).verdict is Verdict.PASS, "as under DDP: not judged"


def test_each_goes_on_with_its_own_in_steps_of_training(ran: Any) -> None:
    training = Training(lambda named: torch.optim.SGD([*named.values()], lr=0.1), steps=3)
    right = ran(its_own, case(microbatches=2), training=training)
    assert right.verdict is Verdict.PASS, right.mismatches
    wrong = ran(lambda old, new: new + 1e-6, case(microbatches=2), training=training)
    assert wrong.verdict is Verdict.FAIL


@pytest.mark.parametrize("one", CASES, ids=Case.describe)
def test_what_forwards_read_of_them_is_that_of_the_own_data(gloo: Engine, one: Case) -> None:
    """The reference went on with the other ranks' data, and right candidates were wrong."""
    right = Check(spec(reads=True), lambda case, mesh: Scaled(case["width"], reads=True))
    result = Runner(right, gloo).run(one)
    assert result.verdict is Verdict.PASS, result.mismatches


class Late(Scaled):
    """A forward makes one more buffer, of which nothing was drawn."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.register_buffer("last", None)

    def forward(self, x: Tensor) -> Tensor:
        self.last = x.detach().clone()
        return super().forward(x)


@pytest.mark.parametrize("one", [case(), case(mesh={"tp": 2})], ids=Case.describe)
def test_one_that_a_forward_makes_is_not_compared(gloo: Engine, one: Case) -> None:
    late = replace(spec(), reference=lambda case: Late(case["width"]))
    late = replace(late, finalize=finalize if one.dp > 1 else None)
    result = Runner(Check(late, lambda case, mesh: Late(case["width"])), gloo).run(one)
    assert result.verdict is Verdict.PASS, result.unknown or result.mismatches
