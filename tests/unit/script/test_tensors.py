"""What a script compares: the same tensors are wrong as on the ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tpcheck.bounds.compare import compare
from tpcheck.bounds.spread import Spread
from tpcheck.placement import Replicate
from tpcheck.protocol.problem import Target
from tpcheck.script import body
from tpcheck.script.parts import tensors
from tpcheck.script.parts.tensors import Expected, dense, ending, named
from tpcheck.tensors import forms
from tpcheck.vocabulary import Kind

VALUE = torch.linspace(1, 2, 64, dtype=torch.float64).reshape(8, 8)
SPREAD = Spread(
    torch.full((8, 8), 1e-6, dtype=torch.float64), 100, 1000, gain=3e7, runs=1000, elements=64
)


def target(value: Tensor = VALUE, spread: Spread = SPREAD, **more: Any) -> Target:
    dtype = more.pop("dtype", torch.float32)
    return Target(Kind.OUTPUT, "y", Replicate(), dtype, value, spread, **more)


def expected(of: Target) -> Expected:
    names = {**vars(tensors), "nan": float("nan"), "inf": float("inf")}
    return eval(f"[{body.expected(of, of.value.numel())}]", names)[0]


def off(at: float, where: Any = (3, 4)) -> Tensor:
    out = VALUE.clone()
    out[where] += at
    return out.float()


UNEVEN = torch.tensor([-1.0, 1.0], dtype=torch.float64).repeat(32).reshape(8, 8)


@pytest.mark.parametrize(
    ("actual", "says"),
    [
        (VALUE.float(), None),
        (off(2e-6), None),
        (off(1e-3), "[3, 4]: expected 1.44"),
        (off(float("nan")), "[3, 4]: expected"),
        (off(float("inf")), "got inf"),
        ((VALUE + 5e-6 * UNEVEN).float(), "together off by"),
        ((VALUE * (1 + 1e-6)).float(), None),
        ((VALUE * (1 + 2e-6)).float(), "scaled"),
        (VALUE, "is torch.float64, expected torch.float32"),
        (VALUE[:4].float(), "has shape (4, 8), expected (8, 8)"),
        (None, "there is none"),
    ],
)
def test_a_tensor_is_wrong_where_the_ranks_say_so(actual: Tensor | None, says: str | None) -> None:
    of = target()
    said = expected(of).fault(actual)
    assert said is None if says is None else said is not None and says in said, said
    about: dict[str, Any] = {"name": "y", "kind": of.kind, "rank": 0, "dtype": of.dtype}
    found = compare(actual, of.value, of.spread, **about)
    assert (found.mismatch is None) == (said is None)


def test_an_element_that_can_not_be_judged_is_not() -> None:
    sigma = SPREAD.sigma.clone()
    sigma[3, 4] = torch.inf
    of = target(spread=Spread(sigma, 100, 1000))
    assert expected(of).fault(off(1e3)) is None
    assert expected(of).fault(off(float("nan"))) is None
    assert expected(of).fault(off(1e3, (3, 5))) is not None


def test_what_may_overflow_may_be_infinite() -> None:
    for largest, right in ((1.445, True), (1.5, False), (float("inf"), False)):
        spread = replace(SPREAD, sigma=SPREAD.sigma * 100, gain=0.0, largest=largest)
        of, actual = target(spread=spread), off(float("inf"))
        assert (expected(of).fault(actual) is None) == right
        found = compare(actual, of.value, spread, name="y", kind=of.kind, rank=0)
        assert (found.mismatch is None) == right
        assert expected(of).fault(off(float("-inf"))) is not None
        assert expected(of).fault(off(float("nan"))) is not None


def test_integers_are_compared_beyond_float64() -> None:
    exact = torch.tensor([2**53 + 1])
    spread = Spread(torch.zeros(1, dtype=torch.float64), 1, 1)
    of = target(exact.double(), spread, exact=exact, dtype=torch.int64)
    assert expected(of).fault(exact) is None
    assert expected(of).fault(exact - 1) is not None


def test_a_gradient_may_be_missing_where_the_reference_has_none() -> None:
    assert expected(target(unused=True)).fault(None) is None


def test_results_are_named_as_in_reports() -> None:
    one = torch.ones(1)
    assert list(named(one)) == ["output"]
    assert list(named((one, None, {"aux": one}))) == ["output.0", "output.2.aux"]
    assert list(named({"z": one, "w": (one, one)})) == ["z", "w.0", "w.1"]


def fails() -> list[str]:
    raise ValueError("deliberate")


@pytest.mark.parametrize(
    ("show", "raises", "status"),
    [
        (lambda: [], False, 0),
        (lambda: ["y: wrong"], False, 1),
        (fails, False, 2),
        (fails, True, 1),
        (lambda: [], True, 0),
    ],
)
def test_exit_codes(show: Any, raises: bool, status: int) -> None:
    assert ending(show, raises=raises) == status


ROWS = torch.tensor([[0, 2, 2]])
STRIDED = torch.arange(12.0).view(4, 3).t()
SUMMED = torch.zeros(6, 4).index_add_(0, ROWS[0], STRIDED)


@pytest.mark.parametrize("zeros_of", [dense, forms.dense])
@pytest.mark.parametrize(
    "gradient",
    [torch.sparse_coo_tensor(ROWS, STRIDED, (6, 4), check_invariants=False), SUMMED],
    ids=["sparse", "strided"],
)
def test_a_gradient_with_its_zeros(gradient: Tensor, zeros_of: Callable[[Tensor], Tensor]) -> None:
    """An embedding may leave it sparse, with rows that are met twice."""
    assert torch.equal(zeros_of(gradient), SUMMED)
