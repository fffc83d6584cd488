"""Which operation makes a tensor of a run, and what it rounds."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tpcheck import Layout, Spec
from tpcheck.bounds.arithmetic import UNIT_ROUNDOFF, Arithmetic
from tpcheck.case import Case
from tpcheck.oracle.pose import Posed, pose
from tpcheck.oracle.producers import LARGE, Producers
from tpcheck.vocabulary import Kind

WIDTH = 512  # its square is LARGE
HOW = Arithmetic(torch.float32, 2)
EVERY = torch.arange(WIDTH * WIDTH)


def given(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def test_a_product_is_known_by_its_bits_and_so_is_its_transpose() -> None:
    a, b = given(WIDTH, 8), given(8, WIDTH)
    with Producers(torch.float32) as noted:
        made = a @ b
    found = noted.rounded(made, EVERY, HOW)
    assert found is not None and found.dtype == torch.float64
    found = found.view(WIDTH, WIDTH)
    some = torch.tensor([7, 7 * WIDTH + 3, 9 * WIDTH])
    few = noted.rounded(made, some, HOW)
    assert few is not None and torch.equal(few, found.view(-1)[some])
    # at least what storing each number rounds
    least = (UNIT_ROUNDOFF[torch.float32] * made.double()) ** 2 / 3
    assert bool((found >= least).all()) and float(found.mean()) < 100 * float(least.mean())
    turned = noted.rounded(made.mT.contiguous(), some, HOW)
    assert turned is not None and torch.equal(turned, found.mT.reshape(-1)[some])


def test_what_a_product_is_added_to_is_taken_by_rows() -> None:
    first, a, b = given(WIDTH), given(WIDTH, 8), given(8, WIDTH)
    with Producers(torch.float32) as noted:
        made = torch.addmm(first, a, b)
    every, few = noted.rounded(made, EVERY, HOW), noted.rounded(made, EVERY[513:515], HOW)
    assert every is not None and few is not None and torch.equal(few, every[513:515])


def test_of_several_matrices_all_are_known() -> None:
    a, b = given(2, WIDTH, 8), given(2, 8, WIDTH)
    with Producers(torch.float32) as noted:
        made = torch.bmm(a, b)
    found = noted.rounded(made, torch.tensor([5, WIDTH * WIDTH + 5]), HOW)
    assert found is not None and found.shape == (2,) and bool((found > 0).all())


def test_a_sum_of_products_is_none_of_them() -> None:
    a, b = given(WIDTH, 8), given(8, WIDTH)
    with Producers(torch.float32) as noted:
        made = a @ b + a @ b
    assert noted.rounded(made, EVERY, HOW) is None
    made[3, 5] += 1e-3
    assert noted.rounded(made, EVERY, HOW) is None


def test_a_product_in_another_dtype_than_the_run_rounds_otherwise() -> None:
    """As float32 in the midst of bfloat16, whose roundings are 65,536 times as large."""
    a, b = given(WIDTH, 8), given(8, WIDTH)
    with Producers(torch.bfloat16) as noted:
        made = a @ b
    assert noted.rounded(made, EVERY[:9], Arithmetic(torch.bfloat16, 2)) is None


def test_operators_of_higher_order_run_under_it() -> None:
    def branch(x: Tensor) -> Tensor:
        return x + 1

    x = given(4)
    with Producers(torch.float32):
        found = torch.cond(x.sum() > 0, branch, branch, (x,))
    assert torch.equal(found, x + 1)


def test_small_products_are_not_noted() -> None:
    a, b = given(WIDTH, 8), given(8, WIDTH - 1)
    with Producers(torch.float32) as noted:
        made = a @ b
    assert made.numel() < LARGE and noted.rounded(made, EVERY[:9], HOW) is None


def posed(dtype: str, microbatches: int = 1) -> Posed:
    case = Case({}, dtype=dtype, microbatches=microbatches)
    spec = Spec(
        name="wide",
        cases=[case],
        reference=lambda case: nn.Linear(WIDTH, WIDTH, bias=False),
        inputs=lambda case, draw: {"x": draw("x", 4, WIDTH)},
        layout=lambda case: Layout(),
    )
    return pose(spec, case, None)


@pytest.mark.parametrize(
    ("dtype", "microbatches", "kind", "name", "known"),
    [
        ("float32", 1, Kind.PARAM_GRAD, "weight", True),
        ("bfloat16", 1, Kind.PARAM_GRAD, "weight", True),
        ("float32", 1, Kind.OUTPUT, "output", False),  # it is small
        ("float32", 1, Kind.PARAM_GRAD, "bias", False),  # there is none
        ("float32", 2, Kind.PARAM_GRAD, "weight", False),  # a sum of two
        ("float64", 1, Kind.PARAM_GRAD, "weight", True),  # of the run in float32
        ("float64", 2, Kind.PARAM_GRAD, "weight", False),
    ],
)
def test_what_is_known_of_a_case(
    dtype: str, microbatches: int, kind: Kind, name: str, known: bool
) -> None:
    case = posed(dtype, microbatches)
    assert case.rounded is not None
    found = case.rounded(0, kind, name, EVERY[:9])
    assert (found is not None) is known
    if found is not None:
        assert found.shape == (9,) and bool((found > 0).all())
        # of numbers of about one, and enlarged in float64
        u = UNIT_ROUNDOFF[getattr(torch, dtype)]
        assert 0.01 < float(found.mean().sqrt()) / (u * (8 if dtype == "float64" else 1)) < 10
