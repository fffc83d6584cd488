"""Comparison: what is wrong anywhere is found, what is right passes, evidence says where."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tpcheck.bounds.compare import Comparison, compare
from tpcheck.bounds.limits import elementwise_limit
from tpcheck.bounds.spread import Spread
from tpcheck.evidence import Absent, Values, WrongForm, WrongShape
from tpcheck.tensors import blocks
from tpcheck.tensors.digest import fingerprint
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Kind

F64 = torch.float64
UNIT = 2.0**-53
BIG = (100, 1000)


MANY = 10**9  # samples behind σ: as good as known


def run(actual: Tensor | None, expected: Tensor, sigma: Any = UNIT, **more: Any) -> Comparison:
    full = sigma if isinstance(sigma, Tensor) else torch.full_like(expected, sigma)
    return compare(
        actual, expected, Spread(full, MANY, MANY), name="y", kind=Kind.OUTPUT, rank=3, **more
    )


def test_equal_values_agree_and_use_nothing_of_the_bound() -> None:
    full = torch.randn(5, 3, dtype=F64)
    assert run(full.clone(), full) == Comparison(None, 0.0)
    assert run(full.clone(), full, sigma=0.0) == Comparison(None, 0.0)


def test_noise_of_the_expected_size_agrees() -> None:
    full = torch.randn(BIG, dtype=F64)
    got = run(full + 1e-3 * torch.randn(BIG, dtype=F64), full, sigma=1e-3)
    assert got.mismatch is None and 0.3 < got.usage < 1


def values(found: Mismatch) -> Values:
    assert isinstance(found.detail, Values)
    return found.detail


def test_one_wrong_element_in_a_hundred_thousand_is_found_where_it_is() -> None:
    full = torch.zeros(BIG, dtype=F64)
    wrong = full.clone()
    wrong[41, 7] = 12e-3
    found = run(wrong, full, sigma=1e-3).mismatch

    assert found is not None
    assert (found.tensor, found.kind, found.rank, found.index) == ("y", "output", 3, (41, 7))
    assert (found.expected, found.actual, found.error) == (0.0, 12e-3, 12e-3)
    assert found.bound == pytest.approx(1e-3 * elementwise_limit(10**5, MANY))
    assert found.detail == Values(1, 10**5)  # the norm alone would have missed it


def test_a_small_error_everywhere_is_found_by_the_norm_alone() -> None:
    full = torch.zeros(BIG, dtype=F64)
    found = run(full + 2e-3, full, sigma=1e-3).mismatch
    assert found is not None and values(found).wrong == 0
    assert values(found).norm_error == pytest.approx(2.0)
    assert (values(found).norm_bound or 9) < 2 < elementwise_limit(10**5, MANY)


@pytest.mark.parametrize("wrong", ["", "scale", "last"])
def test_a_few_rows_at_a_time_the_verdict_is_what_it_is_at_once(
    wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = torch.randn((12, 4, 9), generator=torch.Generator().manual_seed(1), dtype=F64)
    sigma = 1e-3 * torch.linspace(1, 3, full.numel(), dtype=F64).reshape(full.shape)
    independent = float((full / sigma).square().sum().sqrt())
    gain = Spread(sigma, MANY, MANY, gain=independent, runs=MANY, elements=full.numel())
    got = full + 0.1 * sigma * torch.sign(full.roll(1))
    got[0, 0, 0] += 5 * sigma[0, 0, 0]
    got += 2e-3 * full if wrong == "scale" else 0.0
    got[-1, -1, -1] += 0.1 if wrong == "last" else 0.0
    about = {"name": "y", "kind": Kind.OUTPUT, "rank": 0}
    for there in (got, got.float()):
        at_once = compare(there, full, gain, **about)
        with monkeypatch.context() as patched:
            patched.setattr(blocks, "BLOCK", 20)
            found = compare(there, full, gain, **about)
        assert (found.mismatch is None) == (at_once.mismatch is None) == (not wrong)
        assert found.usage == pytest.approx(at_once.usage, rel=1e-12)


def test_the_worst_element_is_the_one_farthest_outside_its_own_bound() -> None:
    sigma = torch.tensor([1.0, 1e-6, 1.0], dtype=F64)
    found = run(torch.tensor([20.0, 1.0, 0.0], dtype=F64), torch.zeros(3, dtype=F64), sigma)
    assert found.mismatch is not None and found.mismatch.index == (1,)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("sigma", [0.0, 1.0])
def test_a_value_that_is_not_finite_is_never_right(bad: float, sigma: float) -> None:
    full = torch.randn(4, 5, dtype=F64)
    wrong = full.clone()
    wrong[2, 1] = bad
    found = run(wrong, full, sigma).mismatch
    assert found is not None and found.index == (2, 1)
    assert (values(found).nan or 0) == int(math.isnan(bad))


def test_nan_everywhere_is_counted() -> None:
    full = torch.randn(4, 5, dtype=F64)
    found = run(torch.full_like(full, math.nan), full, 1.0).mismatch
    assert found is not None and (values(found).nan, values(found).wrong) == (20, 20)


def test_a_reference_that_overflows_is_matched_by_the_same_overflow_only() -> None:
    full = torch.tensor([math.inf, -math.inf, math.nan, 1.0], dtype=F64)
    assert run(full.clone(), full).mismatch is None
    for i in range(3):
        wrong = full.clone()
        wrong[i] = 0.0
        found = run(wrong, full).mismatch
        assert found is not None and found.index == (i,)
    assert run(-full, full).mismatch is not None


def test_elements_that_cannot_be_judged_hide_no_others() -> None:
    sigma = torch.tensor([math.inf, 1e-9, 1e-9], dtype=F64)
    full = torch.tensor([1.0, 2.0, 3.0], dtype=F64)
    assert run(torch.tensor([9.0, 2.0, 3.0], dtype=F64), full, sigma).mismatch is None
    found = run(torch.tensor([math.nan, 2.0, 3.5], dtype=F64), full, sigma).mismatch
    assert found is not None and found.index == (2,)


def test_where_nothing_rounds_the_last_bit_counts() -> None:
    full = torch.ones(3, dtype=F64)
    wrong = full.clone()
    wrong[1] = math.nextafter(1.0, 2.0)
    found = run(wrong, full, sigma=0.0).mismatch
    assert found is not None and found.index == (1,) and found.bound == 0.0


def test_zeros_of_either_sign_agree() -> None:
    assert run(torch.tensor([-0.0], dtype=F64), torch.zeros(1, dtype=F64), 0.0).mismatch is None


def test_no_gradient_is_a_mismatch_even_where_zero_is_expected() -> None:
    zeros = torch.zeros(3, dtype=F64)
    spread = Spread(zeros, MANY, MANY)
    found = compare(None, zeros, spread, name="w", kind=Kind.PARAM_GRAD, rank=0)
    assert found.mismatch is not None and found.usage == math.inf
    assert found.mismatch.detail == Absent()
    assert run(torch.zeros(3, dtype=F64), torch.zeros(3, dtype=F64)).mismatch is None
    empty = Spread(torch.zeros(0, 3, dtype=F64), MANY, MANY)  # a shard that holds nothing
    for kind in (Kind.PARAM_GRAD, Kind.INPUT_GRAD):
        found = compare(None, empty.sigma, empty, name="w", kind=kind, rank=0)
        assert found == Comparison(None, 0.0)
    assert (
        compare(None, empty.sigma, empty, name="y", kind=Kind.OUTPUT, rank=0).mismatch is not None
    )


@pytest.mark.parametrize("shape", [(3, 4), (12,), (1, 4, 3), (4, 3, 1), ()], ids=str)
def test_another_shape_is_a_mismatch_and_never_broadcast(shape: tuple[int, ...]) -> None:
    found = run(torch.ones(shape, dtype=F64), torch.ones(4, 3, dtype=F64), 1.0).mismatch
    assert found is not None
    assert found.detail == WrongShape(shape, (4, 3))


def test_right_values_in_another_dtype_are_a_mismatch_where_the_dtype_is_fixed() -> None:
    full = torch.ones(3, dtype=F64)
    low = full.bfloat16()
    assert run(low, full).mismatch is None
    assert run(low, full, dtype=torch.bfloat16).mismatch is None
    found = run(low, full, dtype=torch.float32).mismatch
    assert found is not None
    assert (values(found).dtype, values(found).expected_dtype) == ("bfloat16", "float32")


def test_an_empty_slice_agrees_and_a_scalar_is_compared() -> None:
    assert run(torch.zeros(0, 3), torch.zeros(0, 3, dtype=F64)).mismatch is None
    found = run(torch.tensor(2.0), torch.tensor(1.0, dtype=F64)).mismatch
    assert found is not None and found.index == ()


def test_a_tensor_in_any_memory_layout_is_compared_by_its_values() -> None:
    full = torch.randn(4, 5, dtype=F64)
    assert run(full.t().contiguous().t(), full, 0.0).mismatch is None
    assert run(full[:1].expand(4, 5), full, 0.0).mismatch is not None


ONE = torch.tensor([[1.0, -2.0], [0.5, 0.0]])
CHANGED = {
    "a bit": torch.tensor([[1.0, -2.0], [0.5, 1e-45]]),
    "the order": ONE.flip(0),
    "the shape": ONE.reshape(4),
    "the dtype": ONE.double(),
    "nan": torch.tensor([[1.0, -2.0], [0.5, math.nan]]),
    "none": None,
}


@pytest.mark.parametrize("what", CHANGED)
def test_a_fingerprint_shows_a_change_of(what: str) -> None:
    assert fingerprint(CHANGED[what]) != fingerprint(ONE)


@pytest.mark.parametrize("dtype", [F64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_fingerprint_does_not_show_the_sign_of_zero_or_strides(dtype: torch.dtype) -> None:
    full = ONE.to(dtype)
    signed = full.clone()
    signed[1, 1] = -0.0
    assert math.copysign(1, signed[1, 1].item()) == -1
    assert fingerprint(signed) == fingerprint(full) == fingerprint(full.t().contiguous().t())


def test_a_fingerprint_does_not_show_which_nan_it_is() -> None:
    quiet = torch.tensor([1.0, torch.nan], dtype=torch.float32)
    other = torch.tensor([0x3F800000, -0x3FFFFF], dtype=torch.int32).view(torch.float32)
    assert other.isnan().tolist() == [False, True]
    assert not torch.equal(quiet.view(torch.int32), other.view(torch.int32))
    assert fingerprint(quiet) == fingerprint(other)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64], ids=str)
def test_other_dtypes_have_fingerprints_too(dtype: torch.dtype) -> None:
    full = torch.tensor([1, 0, 1]).to(dtype)
    assert fingerprint(full) == fingerprint(full.clone()) != fingerprint(full.flip(0)[:2])
    assert fingerprint(torch.zeros(0, 3)) != fingerprint(torch.zeros(3, 0))


def test_one_row_of_a_larger_tensor_has_the_fingerprint_of_a_tensor_of_its_own() -> None:
    for full in (torch.arange(6).reshape(3, 2), torch.arange(6, dtype=F64).reshape(3, 2)):
        row = full[1:2, 0]  # [1] with stride 2, contiguous as torch counts
        assert row.stride() == (2,) and row.is_contiguous()
        assert fingerprint(row) == fingerprint(row.clone(memory_format=torch.contiguous_format))
        assert fingerprint(row) != fingerprint(full[2:, 0])


def test_an_eight_bit_float_has_a_fingerprint() -> None:
    full = torch.tensor([1.0, -0.0]).to(torch.float8_e4m3fn)
    assert fingerprint(full) == fingerprint(torch.tensor([1.0, 0.0]).to(torch.float8_e4m3fn))


# ---- integers, and other forms


def test_integers_that_float64_does_not_tell_apart_differ() -> None:
    large = torch.tensor([2**53, 2**60])
    exact = large.clone()
    assert run(large, large.double(), 0.0, exact=exact).mismatch is None
    found = run(large + 1, large.double(), 0.0, exact=exact).mismatch
    assert found is not None and found.error == 1.0 and values(found).wrong == 2


def test_an_integer_within_the_jumps_of_a_tie_agrees() -> None:
    expected = torch.tensor([3, 3])
    sigma = torch.tensor([0.0, 7.0], dtype=F64)
    near = torch.tensor([3, 10])
    assert run(near, expected.double(), sigma, exact=expected).mismatch is None
    assert run(near.flip(0), expected.double(), sigma, exact=expected).mismatch is not None


def test_an_empty_tensor_has_a_dtype_too() -> None:
    none = torch.zeros(0, 2, dtype=F64)
    found = run(none.long(), none, dtype=F64).mismatch
    assert found is not None and found.detail == WrongForm("int64", "float64")
    assert run(none, none, dtype=F64).mismatch is None


def test_a_nan_or_infinity_that_is_expected_must_be_the_same() -> None:
    """σ = 0 where they follow from what was given."""
    same = torch.tensor([torch.nan, torch.inf, -torch.inf], dtype=F64)
    assert run(same.clone(), same, 0.0).mismatch is None
    for wrong in (
        [1.0, torch.inf, -torch.inf],
        [torch.nan, -torch.inf, -torch.inf],
        [torch.nan] * 3,
    ):
        assert run(torch.tensor(wrong, dtype=F64), same, 0.0).mismatch is not None


def test_a_nan_that_is_expected_or_left_open_is_not_counted() -> None:
    full = torch.tensor([math.nan, 1.0, 2.0], dtype=F64)
    found = run(torch.tensor([math.nan, 1.0, 4.0], dtype=F64), full).mismatch
    assert found is not None and (values(found).nan, values(found).wrong) == (None, 1)
    sigma = torch.tensor([math.inf, 1e-9, 1e-9], dtype=F64)
    open_ = torch.tensor([3.0, 1.0, 2.0], dtype=F64)
    found = run(torch.tensor([math.nan, 1.0, 4.0], dtype=F64), open_, sigma).mismatch
    assert found is not None and (values(found).nan, values(found).wrong) == (None, 1)


def test_enormous_numbers_are_compared() -> None:
    full = torch.full((3,), 1e93, dtype=F64)
    assert run(full.clone(), full, sigma=1e78).mismatch is None
    assert run(full * (1 + 1e-10), full, sigma=1e78).mismatch is not None
