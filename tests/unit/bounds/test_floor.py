"""The least σ: from one run, and no larger than what noisy runs give."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tests.unit.bounds.noisy import spread
from tpcheck.bounds import floor
from tpcheck.bounds.compare import compare
from tpcheck.bounds.limits import FALSE_ALARM
from tpcheck.bounds.split import SplitProducts
from tpcheck.bounds.spread import Spread, pooled
from tpcheck.tensors import blocks
from tpcheck.vocabulary import Kind

F64 = torch.float64
VALUE = torch.randn((6, 8), generator=torch.Generator().manual_seed(1), dtype=F64)


def least(
    value: Tensor,
    low: Tensor,
    dtype: torch.dtype = torch.float32,
    *,
    own: Tensor | None = None,
    reduced: bool = True,
) -> Spread:
    runs = floor.Runs(low, low if own is None else own, value, 2)
    return floor.least(value, runs, dtype, chance=FALSE_ALARM, reduced=reduced)


def test_sigma_is_what_the_run_is_off_and_no_more_than_what_noise_adds_to_it() -> None:
    own = VALUE.float()
    off = own.double() - VALUE
    found = least(VALUE, own)
    stored = VALUE.abs() * 2.0**-24 / math.sqrt(3)
    assert torch.allclose(found.sigma, pooled(off.square()).sqrt().maximum(stored))
    other = spread([stored, -stored], off, dtype=torch.float32)
    assert bool((found.sigma <= other.sigma * (1 + 1e-12)).all())
    assert found.elementwise_limit(48) <= other.elementwise_limit(48)
    assert found.norm_limit(48) <= other.norm_limit(48)


def test_what_does_not_round_has_no_sigma() -> None:
    assert not bool(least(VALUE.float().double(), VALUE.float()).sigma.any())


def test_a_common_scale_error_is_held_against_independent_ones() -> None:
    found = least(VALUE, VALUE + 2e-7 * VALUE.sign())
    assert found.gain == pytest.approx(float((VALUE / found.sigma).square().sum().sqrt()))
    assert found.gain_limit() == pytest.approx(found.elementwise_limit(1) * found.gain)
    assert least(VALUE, VALUE.float(), reduced=False).gain == 0.0


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_a_row_that_moves_whole_at_right_angles_hides_no_scale_error(dtype: torch.dtype) -> None:
    value = VALUE - VALUE.mean(-1, keepdim=True)
    moved = value + 1e-6 * torch.randn((6, 1), generator=torch.Generator().manual_seed(2))
    found = least(value, moved, dtype)
    assert found.gain < 1e-6 * float((value / found.sigma).square().sum().sqrt())


def test_of_a_vector_each_number_errs_by_itself() -> None:
    value = VALUE.reshape(-1).sign()
    errors = value * 1e-7 * torch.tensor([1.0, -1.0]).double().repeat(24)  # v·e adds up to 0
    found = least(value, value + errors)
    along = value * errors / found.sigma.square()
    assert abs(float(along.sum())) < 1e-6 * found.gain
    assert found.gain == pytest.approx(float((value / found.sigma).square().sum().sqrt()))


def test_float64_has_what_float32_is_off_scaled_and_half_of_the_margin() -> None:
    narrow = least(VALUE, VALUE.float())
    wide = least(VALUE, VALUE.float(), F64)
    assert torch.allclose(wide.sigma, narrow.sigma * 2.0**-29 * 8)


def test_what_is_only_moved_has_none_beside_what_rounds() -> None:
    value = VALUE.clone()
    value[:, 2] = VALUE[:, 2].float()  # a column, of a matrix with others
    value[3, 5] = VALUE[3, 5].float() * 1e6  # one element, by far the largest
    found = least(value, value.float()).sigma
    assert not bool(found[:, 2].any()) and bool(found[0, :2].all())
    assert found[3, 5] < 1e6 * VALUE[3, 5].abs() * 2.0**-24 / 1e3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_what_is_stored_in_another_dtype_rounds_as_that_does(dtype: torch.dtype) -> None:
    wide = least(VALUE, VALUE.float(), dtype)  # an output in float32
    assert torch.equal(wide.sigma, least(VALUE, VALUE.float()).sigma)
    assert bool((least(VALUE, VALUE.to(dtype), dtype).sigma > 100 * wide.sigma).all())


def test_what_only_the_run_of_split_products_met_is_no_sigma() -> None:
    low = VALUE.float()
    low[2, 3] += 1.0  # a sign that turned
    own = VALUE.float()
    found, plain = least(VALUE, low, own=own).sigma, least(VALUE, own).sigma
    assert bool((found <= plain * math.sqrt(floor.Runs(low, own, VALUE, 2).split)).all())
    assert found[2, 3] < 1e-6 and least(VALUE, low).sigma[2, 3] > 0.1


def test_integers_are_exact() -> None:
    for value in (torch.tensor([1, 5, 7]), torch.tensor([True, False])):
        assert not bool(least(value.double(), value).sigma.any())


@pytest.mark.parametrize("shape", [(0,), (4, 0), (0, 4), (2, 0, 3)])
def test_nothing_has_a_sigma_of_its_shape(shape: tuple[int, ...]) -> None:
    empty = torch.zeros(shape, dtype=F64)
    assert least(empty, empty.float()).sigma.shape == shape


@pytest.mark.parametrize(
    ("value", "own", "ordinary"),
    [
        ([1.0, 2.0], [1.0, 2.0], True),
        ([0.0, 0.0], [0.0, 0.0], True),
        ([1.0, math.inf], [1.0, 2.0], False),
        ([1.0, 2.0], [1.0, math.nan], False),
        ([1e-200, 0.0], [0.0, 0.0], False),  # which float32 can't hold
        ([1.0, 2.0], [1.0], False),
        ([], [], True),
    ],
)
def test_what_is_not_ordinary(value: list[float], own: list[float], ordinary: bool) -> None:
    key = ("output", "y")
    pair = {key: torch.tensor(value, dtype=F64)}, {key: torch.tensor(own, dtype=F64)}
    assert floor.is_ordinary(*pair, torch.float32) is ordinary
    assert not floor.is_ordinary(pair[0], {}, torch.float32)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
def test_integers_of_which_rounding_decides_are_not_ordinary(dtype: torch.dtype) -> None:
    value, own = torch.tensor([1, 0, 1]).to(dtype), torch.tensor([1, 1, 1]).to(dtype)
    key = ("output", "ids")
    assert floor.is_ordinary({key: value}, {key: value}, torch.bfloat16)
    assert not floor.is_ordinary({key: value}, {key: own}, torch.bfloat16)
    assert not floor.is_ordinary({key: value.double()}, {key: own}, torch.bfloat16)


def test_a_run_in_float32_that_has_gone_another_way_is_not_ordinary() -> None:
    value, own = {("output", "y"): VALUE}, {("output", "y"): VALUE.float()}
    assert floor.is_ordinary(value, own, F64)
    own["output", "y"][0] = VALUE[1].float()
    assert not floor.is_ordinary(value, own, F64)
    assert floor.is_ordinary(value, own, torch.float32)  # which is off so itself


def test_its_norm_is_that_of_as_many_errors_as_there_are_elements() -> None:
    # one element has nearly all of σ: by its participation ratio it would count alone
    sigma = torch.full((400,), 1e-3, dtype=F64)
    sigma[0] = 1.0
    actual = torch.zeros(400, dtype=F64)
    actual[0] = 3.0
    for known, wrong in ((False, False), (True, True)):
        of = Spread(sigma, floor.KNOWN, floor.KNOWN, least=known)
        about = {"name": "y", "kind": Kind.OUTPUT, "rank": 0}
        found = compare(actual, torch.zeros_like(actual), of, **about)
        assert (found.mismatch is not None) is wrong


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, F64])
@pytest.mark.parametrize("shape", [(6, 8), (48,), (2, 3, 8), (3, 16)])
def test_a_few_rows_at_a_time_it_is_what_it_is_at_once(
    shape: tuple[int, ...], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = VALUE.reshape(shape) * torch.linspace(1, 9, VALUE.numel(), dtype=F64).reshape(shape)
    low, own = value.bfloat16(), (value * (1 + 2.0**-9)).bfloat16()
    low.view(-1)[5] = value.view(-1)[5] = 3.0  # exact
    at_once = least(value, low, dtype, own=own)
    monkeypatch.setattr(blocks, "BLOCK", 9)
    found = least(value, low, dtype, own=own)
    assert torch.allclose(found.sigma, at_once.sigma, rtol=1e-14, atol=0)
    assert found.gain == pytest.approx(at_once.gain, rel=1e-14)
    assert found.sigma.shape == shape and found.elements == value.numel()


@pytest.mark.parametrize("degree", [2, 4, 8])
def test_sums_that_an_all_reduce_passes_on_are_within(degree: int) -> None:
    draw = torch.Generator().manual_seed(degree)
    a, b = (torch.randn(n, generator=draw).bfloat16() for n in ((64, 512), (512, 256)))
    value, own = a.double() @ b.double(), a @ b
    with SplitProducts(degree):
        low = a @ b
    spread = floor.least(
        value,
        floor.Runs(low, own, value, degree),
        torch.bfloat16,
        chance=FALSE_ALARM,
        reduced=True,
    )
    parts = [p @ q for p, q in zip(a.chunk(degree, 1), b.chunk(degree), strict=True)]
    passed_on = sum(parts[1:] + parts[:1])  # from another rank's on
    for got, right in ((passed_on, True), (passed_on * (1 + 2.0**-6), False)):
        found = compare(got, value, spread, name="y", kind=Kind.OUTPUT, rank=0)
        assert (found.mismatch is None) == right, found
