"""What a spec or a reference may be made of: what can't be compared is refused in one line."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tpcheck import Layout, Spec
from tpcheck.case import Case
from tpcheck.errors import InvalidArgument
from tpcheck.oracle.pose import Posed, pose
from tpcheck.tensors.forms import INTEGERS

CASE = Case(mesh={"tp": 2})


class With(nn.Module):
    """One more tensor beside a parameter; `of` says what is returned of it and of x · weight."""

    def __init__(self, more: Tensor | None, of: Callable[[Tensor, Any], Any]) -> None:
        super().__init__()
        self.weight, self.of = nn.Parameter(torch.ones(4)), of
        if more is None or more.requires_grad:
            self.more = None if more is None else nn.Parameter(more)
        else:
            self.register_buffer("more", more)

    def forward(self, x: Tensor, *rest: Tensor) -> Any:
        return self.of(x * self.weight, self.more)


def posed(
    more: Tensor | None = None,
    of: Callable[[Tensor, Any], Any] = lambda y, more: y,
    given: Tensor | None = None,
    case: Case = CASE,
) -> Posed:
    spec = Spec(
        name="with",
        cases=[case],
        reference=lambda case: With(more, of),
        inputs=lambda case, draw: {"x": draw("x", 3, 4)} | ({} if given is None else {"g": given}),
        layout=lambda case: Layout(),
    )
    return pose(spec, case)


REFUSED = {
    "complex64": torch.ones(2, dtype=torch.complex64),
    "float8_e5m2": torch.ones(2).to(torch.float8_e5m2),
    "float8_e4m3fnuz": torch.ones(2).to(torch.float8_e4m3fnuz),
    "sparse_coo": torch.eye(2).to_sparse(),
    "meta": torch.ones(2, device="meta"),
    "of no shape before a first forward": nn.UninitializedBuffer(),
}


@pytest.mark.parametrize("word", REFUSED)
def test_a_buffer_and_an_input_that_can_not_be_compared_are_refused(word: str) -> None:
    with pytest.raises(InvalidArgument, match=f"buffer 'more' is {word}"):
        posed(REFUSED[word])
    with pytest.raises(InvalidArgument, match=f"input 'g' is {word}"):
        posed(given=REFUSED[word])


def test_a_complex_parameter_is_refused_before_its_imaginary_part_is_dropped() -> None:
    with pytest.raises(InvalidArgument, match=r"'more' is complex64.*view_as_real"):
        posed(torch.ones(2, dtype=torch.complex64, requires_grad=True))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_and_bools_are_expected_as_what_they_are(dtype: torch.dtype) -> None:
    numbers = torch.tensor([0, 1, 1, 1]).to(dtype)
    problem = posed(numbers, lambda y, more: (y, more), given=numbers).problems[0]
    found = {(t.kind, t.name): t for t in problem.targets}["output", "output.1"]
    assert found.dtype == dtype
    assert found.exact is not None and found.exact.tolist() == [0, 1, 1, 1]
    assert not found.spread.sigma.any()


def test_a_bool_that_rounding_decides_is_not_judged_and_an_index_by_its_own_jumps() -> None:
    def ties(y: Tensor, more: Any) -> Any:
        equal = torch.stack([y[0] / 3 * 3, y[0], y[0]])  # one number but for rounding
        others = (y > 0, torch.cat([equal.argmax(0), torch.tensor([7])]))
        return (y, (equal[0] * 7) / 7 > equal[1], *others)

    problem = posed(of=ties, case=Case(mesh={"tp": 2}, dtype="float32")).problems[0]
    found = {t.name: t.spread.sigma for t in problem.targets if t.kind == "output"}
    assert found["output.1"].isinf().any()
    assert not found["output.2"].any()
    assert float(found["output.3"][-1]) == 0.0 < float(found["output.3"][:-1].max()) < 10


# ---- the reference's own doing


def test_what_a_forward_returned_is_not_what_became_of_it_later() -> None:
    case = Case(mesh={"tp": 2}, step=True, microbatches=2)

    class Own(With):
        def forward(self, x: Tensor, *rest: Tensor) -> Any:
            self.more.add_(1)
            return {"y": x * self.weight, "weight": self.weight, "more": self.more}

    spec = Spec(
        name="own",
        cases=[case],
        reference=lambda case: Own(torch.tensor([0]), lambda y, more: y),
        inputs=lambda case, draw: {"x": draw("x", 3, 4)},
        layout=lambda case: Layout(),
    )
    problem = pose(spec, case).problems[0]
    found = {t.name: t.value for t in problem.targets if t.kind == "output"}
    assert torch.equal(found["weight"], problem.params["weight"].double())
    assert [found[name].tolist() for name in ("more", "more@1", "more@step")] == [[1], [2], [3]]


class WritesIntoItsGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor) -> Tensor:
        return y.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return grad.mul_(2)


def test_a_backward_that_writes_into_its_gradient_leaves_the_cotangent_as_it_is() -> None:
    plain, writing = (posed(of=of).problems[0] for of in (lambda y, m: y, _writing))
    assert torch.equal(plain.cotangents[0]["output"], writing.cotangents[0]["output"])


def _writing(y: Tensor, more: Any) -> Tensor:
    return WritesIntoItsGradient.apply(y)  # type: ignore[no-any-return, no-untyped-call]


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_a_sparse_gradient_is_expected_with_its_zeros(dtype: str) -> None:
    def embedded(sparse: bool) -> Tensor:
        spec = Spec(
            name="embedding",
            cases=[CASE],
            reference=lambda case: nn.Embedding(8, 4, sparse=sparse),
            inputs=lambda case, draw: {"x": draw.integers("x", 0, 8, 3, 4)},
            layout=lambda case: Layout(),
        )
        problem = pose(spec, Case(mesh={"tp": 2}, dtype=dtype, step=True)).problems[0]
        return {(t.kind, t.name): t for t in problem.targets}["param_grad", "weight"].value

    assert torch.equal(embedded(sparse=True), embedded(sparse=False))


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
@pytest.mark.parametrize(
    "noise", ["normal", "uniform", "both", "unequal", "of python", "of its own", "with a mask"]
)
def test_a_reference_that_draws_what_is_not_a_mask_is_refused(dtype: str, noise: str) -> None:
    """What it draws would pass for rounding: any candidate would be within the bounds."""

    own, numbers = torch.Generator().manual_seed(1), random.Random(1)

    def drawn(y: Tensor, more: Any) -> Tensor:
        if noise == "normal":
            return y + torch.randn_like(y)
        if noise == "uniform":
            return y * torch.rand_like(y)
        if noise == "of python":
            return y * (1.0 + numbers.random())
        if noise == "of its own":
            return y * torch.rand(y.shape, generator=own)
        if noise == "with a mask":
            return nn.functional.dropout(y, 0.5) * (1 + numbers.random())
        if noise == "both":
            return nn.functional.dropout(y, 0.5) + torch.randn_like(y)
        return y * torch.bernoulli(torch.linspace(0.2, 0.8, y.shape[-1]).expand(y.shape))

    with pytest.raises(InvalidArgument, match="other numbers for 'output' when it runs again"):
        posed(of=drawn, case=Case(mesh={"tp": 2}, dtype=dtype))


def test_a_reference_that_keeps_something_from_one_forward_to_the_next_is_refused() -> None:
    calls: list[int] = []

    def counts(y: Tensor, more: Any) -> Tensor:
        calls.append(1)
        return y * len(calls)

    with pytest.raises(InvalidArgument, match="kept from one forward to the next"):
        posed(of=counts)


def test_what_draws_random_numbers_and_gives_the_same_is_not_refused() -> None:
    assert posed(of=lambda y, more: y + 0 * torch.rand(4)).problems[0].targets
