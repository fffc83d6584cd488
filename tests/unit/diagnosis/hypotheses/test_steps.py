"""Wrong steps of an optimizer, and what they are called."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from tests.unit.diagnosis.edits import Edit, Ranks, examine
from tests.unit.test_training import CASE, adamw, halved, spec, values
from tpcheck import Norm, Scaling
from tpcheck.case import Case
from tpcheck.causes.norms import NotClipped
from tpcheck.causes.steps import GradientOfOwnPart
from tpcheck.diagnosis.facts import Facts, Local
from tpcheck.diagnosis.hypotheses.steps import not_zeroed
from tpcheck.oracle.overflow import draw_overflow
from tpcheck.oracle.pose import Posed, pose
from tpcheck.oracle.reference import build_reference
from tpcheck.placement import Replicate, take
from tpcheck.protocol.scaling import SCALE
from tpcheck.tensors.names import InPass, Pass
from tpcheck.vocabulary import Kind


def on(ranks: tuple[int, ...], kind: Kind, name: str, new: Callable[[Posed, int], Tensor]) -> Edit:
    """These ranks hold their part of another tensor."""

    def edit(held: Ranks, posed: Posed) -> None:
        targets = {(t.kind, t.name): t for t in posed.problems[0].targets}
        target = targets[kind, name]
        for rank in ranks:
            part = take(new(posed, rank), target.entry, case=posed.case, rank=rank)
            held[rank][f"{kind}/{name}"] = part.to(target.dtype).clone()

    return edit


def at(kind: Kind, name: str, step: int) -> Callable[[Posed, int], Tensor]:
    return lambda posed, rank: values(posed, kind, step)[name]


def stepped(name: str, step: int, times: Callable[[int], float]) -> Callable[[Posed, int], Tensor]:
    def new(posed: Posed, rank: int) -> Tensor:
        before = values(posed, Kind.PARAM, step - 1)[name]
        return before + times(rank) * (values(posed, Kind.PARAM, step)[name] - before)

    return new


def both(posed: Posed, rank: int) -> Tensor:
    gradients = [values(posed, Kind.PARAM_GRAD, step)["up.weight"] for step in (0, 1)]
    return gradients[0] + gradients[1]


def fresh(posed: Posed, rank: int) -> Tensor:
    return values(posed, Kind.PARAM_GRAD, 1)["up.weight"]


SECOND = str(InPass("up.weight", Pass(0, 1)))
KEPT = str(InPass("up.weight.momentum_buffer", Pass(0, 1)))
WRONG = {
    "a shard is not stepped": (
        on((1,), Kind.PARAM, SECOND, at(Kind.PARAM, "up.weight", 0)),
        "gradient-dropped",
        "up.weight@step2 is on ranks [1] what it was before the step",
    ),
    "a replica is not stepped": (
        on((0,), Kind.PARAM, "down.bias@step3", at(Kind.PARAM, "down.bias", 1)),
        "replicas-differ",
        "down.bias@step3 is on ranks [0]",
    ),
    "nothing is kept": (
        on((0, 1), Kind.OPTIMIZER_STATE, KEPT, fresh),
        "gradient-dropped",
        "earlier ones are lost",
    ),
    "a gradient stays": (
        on((0, 1), Kind.PARAM_GRAD, SECOND, both),
        "stale-buffer",
        "has the gradient of the step before in it",
    ),
    "twice the rate": (
        on((0, 1), Kind.PARAM, SECOND, stepped("up.weight", 1, lambda rank: 2.0)),
        "summed-twice",
        "changes by 2 times the update",
    ),
    "half the rate": (
        on((0, 1), Kind.PARAM, SECOND, stepped("up.weight", 1, lambda rank: 0.5)),
        "averaged-not-summed",
        "changes by 0.5 times the update",
    ),
    "another rate on one rank": (
        on((1,), Kind.PARAM, "down.bias@step2", stepped("down.bias", 1, lambda rank: 0.7)),
        "replicas-differ",
        "changes by 0.7 times the update on ranks [1]",
    ),
    "a rate of each rank's own": (
        on((0, 1), Kind.PARAM, SECOND, stepped("up.weight", 1, lambda rank: 0.6 + 0.1 * rank)),
        "partial-not-reduced",
        "0.6 on rank 0, 0.7 on rank 1",
    ),
}


@pytest.mark.parametrize(("edit", "code", "says"), WRONG.values(), ids=WRONG)
def test_a_wrong_step_is_named(edit: Edit, code: str, says: str) -> None:
    named = examine(edit, spec=spec(), case=CASE)
    assert named.code == code, named
    assert says in named.message


def test_any_other_factor_is_not_named() -> None:
    third = on((0, 1), Kind.PARAM, SECOND, stepped("up.weight", 1, lambda rank: 0.3))
    assert examine(third, spec=spec(), case=CASE).code == "unclassified"


def test_what_follows_from_a_wrong_step_is_not_asked() -> None:
    """The gradients of the second step are wrong, too: a multiple, by chance."""

    def edit(held: Ranks, posed: Posed) -> None:
        WRONG["a replica is not stepped"][0](held, posed)
        on((0, 1), Kind.PARAM, "down.bias", lambda p, r: p.problems[0].params["down.bias"])(
            held, posed
        )
        on((0, 1), Kind.PARAM_GRAD, SECOND, both)(held, posed)

    named = examine(edit, spec=spec(), case=CASE)
    assert (named.code, "param down.bias is what it was" in named.message) == (
        "gradient-dropped",
        True,
    )


def test_a_step_by_gradients_that_are_not_clipped_is_no_sum_of_ranks() -> None:
    """The norm is twice what it is clipped to, and the degree is two."""
    twice = on((0, 1), Kind.PARAM, "down.bias", once_more)
    clipped = spec(norm=Norm(most=(0.5,)), optimizer=plain, steps=1)
    assert examine(twice, spec=clipped, case=CASE).code == "unclassified"
    assert examine(twice, spec=spec(optimizer=plain, steps=1), case=CASE).code == "summed-twice"


CLIPPED = spec(adamw, norm=Norm(most=(0.25,)), schedule=halved)


def of_unclipped(kind: Kind, name: str) -> Callable[[Posed, int], Tensor]:
    """After the second step, whose gradients are not clipped."""

    def new(posed: Posed, rank: int) -> Tensor:
        problem = posed.problems[0]
        named = {n: torch.nn.Parameter(t.double().clone()) for n, t in problem.params.items()}
        optimizer = adamw(named)
        schedule = halved(optimizer)
        for step, norm in enumerate(values(posed, Kind.GRAD_NORM, k)["norm"] for k in (0, 1)):
            share = 1.0 if step else min(1.0, problem.most[0] / (float(norm) + 1e-6))
            for n, gradient in values(posed, Kind.PARAM_GRAD, step).items():
                named[n].grad = share * gradient
            optimizer.step()
            schedule.step()
        if kind is Kind.PARAM:
            return named[name].detach()
        return optimizer.state[named[name.partition(".exp")[0]]][name.rpartition(".")[2]]

    return new


@pytest.mark.parametrize(
    ("kind", "name"),
    [(Kind.OPTIMIZER_STATE, "up.weight.exp_avg"), (Kind.PARAM, "down.bias")],
)
def test_ranks_that_do_not_clip_are_named_through_any_optimizer(kind: Kind, name: str) -> None:
    edit = on((1,), kind, f"{name}@step2", of_unclipped(kind, name))
    named = examine(edit, spec=CLIPPED, case=CASE)
    assert named.code == "replicas-differ" and isinstance(named.cause, NotClipped)
    assert named.cause.ranks == (1,)
    both = on((0, 1), kind, f"{name}@step2", of_unclipped(kind, name))
    assert not isinstance(examine(both, spec=CLIPPED, case=CASE).cause, NotClipped)


def of_own_part(clipped: bool, *, alike: bool = False) -> Callable[[Posed, int], Tensor]:
    """After the second step, which has gradients of each rank's tokens, that add up; or `alike`,
    those of all tokens, by half on each."""

    def new(posed: Posed, rank: int) -> Tensor:
        before, left = (values(posed, Kind.OPTIMIZER_STATE, k)[MEAN] for k in (0, 1))
        gradient = values(posed, Kind.PARAM_GRAD, 1)[MEAN.removesuffix(".exp_avg")]
        due = left - 0.9 * before if clipped else 0.1 * gradient
        terms = torch.linspace(-1.0, 2.0, due.numel(), dtype=due.dtype).reshape(due.shape)
        return 0.9 * before + due * (0.5 if alike else terms if rank else 1.0 - terms)

    return new


MEAN = "down.bias.exp_avg"


@pytest.mark.parametrize("clipped", [True, False])
def test_gradients_of_each_rank_s_part_are_named_by_what_they_add_together(clipped: bool) -> None:
    edit = on((0, 1), Kind.OPTIMIZER_STATE, f"{MEAN}@step2", of_own_part(clipped))
    named = examine(edit, spec=CLIPPED, case=CASE)
    assert named.code == "partial-not-reduced" and isinstance(named.cause, GradientOfOwnPart)
    assert named.cause.clipped is clipped
    one = on((1,), Kind.OPTIMIZER_STATE, f"{MEAN}@step2", of_own_part(clipped))
    assert not isinstance(examine(one, spec=CLIPPED, case=CASE).cause, GradientOfOwnPart)


def test_ranks_that_hold_the_same_have_no_parts_of_a_gradient() -> None:
    """Twice what is clipped by half, with no 1e-6 beside the norm, is what is not clipped."""
    edit = on((0, 1), Kind.OPTIMIZER_STATE, f"{MEAN}@step2", of_own_part(False, alike=True))
    halving = spec(adamw, norm=Norm(most=(0.5,)), schedule=halved)
    assert examine(edit, spec=halving, case=CASE).code == "unclassified"


def left_as_it_was(posed: Posed, rank: int) -> Tensor:
    return torch.zeros_like(values(posed, Kind.OPTIMIZER_STATE, 0)[MEAN])


def test_a_replica_that_adds_nothing_is_no_part_although_the_sum_is_right() -> None:
    edit = on((1,), Kind.OPTIMIZER_STATE, MEAN, left_as_it_was)
    assert examine(edit, spec=CLIPPED, case=CASE).code == "replicas-differ"


def plain(named: Any) -> Any:
    return torch.optim.SGD(named.values(), lr=0.1)


def once_more(posed: Posed, rank: int) -> Tensor:
    before = posed.problems[0].params["down.bias"].double()
    return before + 2.0 * (values(posed, Kind.PARAM, 0)["down.bias"] - before)


SCALED = spec(adamw, scaling=Scaling())


@functools.cache
def overflowing() -> tuple[Case, int, int]:
    """A case in whose second step a gradient of a sharded weight is infinite, the rank that has
    it, and the other one."""
    for seed in range(400):
        case = replace(CASE, seed=seed)
        due = draw_overflow(SCALED, case, build_reference(SCALED, case))
        if due is not None and (due.step, due.name) == (1, "up.weight"):
            owner = int(due.element // CASE["hidden"] >= CASE["intermediate"] // 2)
            return case, owner, 1 - owner
    raise AssertionError("no seed")


def moved(name: str, step: int = 1) -> Callable[[Posed, int], Tensor]:
    return lambda posed, rank: values(posed, Kind.PARAM, step)[name] + 0.1


def test_ranks_that_do_not_know_of_an_infinite_gradient_take_the_step() -> None:
    case, owner, other = overflowing()
    own = on((other,), Kind.PARAM, "down.weight@step2", moved("down.weight"))
    named = examine(own, spec=SCALED, case=case)
    assert named.code == "missing-all-reduce", named
    assert f"ranks [{other}] take the step that ranks [{owner}] leave out" in named.message
    own = on((owner,), Kind.PARAM, "down.weight@step2", moved("down.weight"))
    assert examine(own, spec=SCALED, case=case).code != "missing-all-reduce"
    later = on((other,), Kind.PARAM, "down.weight@step3", moved("down.weight", 2))
    assert examine(later, spec=SCALED, case=case).code != "missing-all-reduce"


def test_a_scale_that_falls_on_one_rank_alone_is_no_step() -> None:
    case, _, other = overflowing()
    alone = on((other,), Kind.OPTIMIZER_STATE, f"{SCALE}@step2", lambda posed, rank: torch.ones(()))
    assert examine(alone, spec=SCALED, case=case).code == "replicas-differ"
    stepped = on((0, 1), Kind.PARAM, "down.weight@step2", moved("down.weight"))
    named = examine(alone, stepped, spec=SCALED, case=case)
    assert "leave out" not in named.message, named  # all ranks step
    half: Any = lambda posed, rank: values(posed, Kind.OPTIMIZER_STATE, 1)[SCALE] / 2  # noqa: E731
    terms = on((0, 1), Kind.OPTIMIZER_STATE, f"{SCALE}@step2", half)
    assert examine(terms, spec=SCALED, case=case).code == "unclassified"


def test_what_wide_bounds_leave_open_is_no_gradient_of_an_earlier_step() -> None:
    posed = pose(spec(), CASE)
    problem = posed.problems[0]
    found = next(t for t in problem.targets if (t.kind, t.name) == (Kind.PARAM_GRAD, SECOND))
    wide = replace(found.spread, sigma=torch.full_like(found.value, float(found.value.abs().max())))
    target = replace(found, entry=Replicate(), spread=wide)
    earlier = values(posed, Kind.PARAM_GRAD, 0)["up.weight"]
    facts = cast("Facts", SimpleNamespace(problem_of=lambda local: problem))

    def named(actual: Tensor) -> bool:
        each = {0: actual}, {0: target.value}, {0: torch.full_like(target.value, 1e-9)}
        return not_zeroed(facts, Local(target, CASE, [0], *each)) is not None

    assert named(target.value + earlier)
    assert named(target.value + 0.9 * earlier)
    assert not named(0.25 * target.value)
    assert not named(target.value - earlier)
    assert not named(target.value + 0.5 * earlier)
