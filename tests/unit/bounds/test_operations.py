"""The variance of each operation: none where nothing rounds, the size of the rounding elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.unit.bounds.noisy import F64, NAMES, alone, noisy, scale, spread
from tpcheck.bounds import projection
from tpcheck.bounds.compare import compare
from tpcheck.specs.reference import rms_normalise
from tpcheck.vocabulary import Kind

FOUR = torch.tensor([0, 2, 3, 1])
TABLE = torch.randn(7, 4, dtype=F64)
EXACT: dict[str, Callable[[Tensor], Tensor]] = {
    "views": lambda x: x.t().reshape(2, -1)[:, 1:].unsqueeze(0).expand(3, -1, -1),
    "gather": lambda x: x.gather(1, torch.tensor([[1, 0], [2, 2], [3, 0], [0, 1]])),
    "cat and permuted rows": lambda x: torch.cat([x[:2], x[2:]]).index_select(0, FOUR),
    "relu and mask": lambda x: F.relu(x).masked_fill(x > 1, 0.0),
    "embedding": lambda x: F.embedding(torch.tensor([5, 0, 3]), TABLE),
    "max": lambda x: x.max(1).values,
    "negation": lambda x: -x,
}


@pytest.mark.parametrize("name", EXACT)
def test_what_does_not_round_has_no_spread(name: str) -> None:
    x = torch.randn(4, 4, dtype=F64)
    found = alone(noisy(EXACT[name], x, dtype=torch.bfloat16, degree=4))
    assert float(found.sigma.max()) == 0.0


def test_an_embedding_gradient_rounds_only_in_rows_used_twice() -> None:
    ids, upstream = torch.tensor([5, 0, 3, 0]), torch.randn(4, 4, dtype=F64)

    def gradient(table: Tensor) -> Tensor:
        leaf = table.clone().requires_grad_()
        return torch.autograd.grad(F.embedding(ids, leaf), leaf, upstream)[0]

    found = noisy(gradient, TABLE, dtype=torch.float32, degree=2)
    own = torch.stack(found).abs().amax(0)
    assert (own[0] > 0).all() and (own[1:] == 0).all()


ROUNDING: dict[str, Callable[[Tensor], Tensor]] = {
    "layer norm": lambda x: F.layer_norm(x, (8,), torch.ones(8, dtype=F64)),
    "rms norm": lambda x: rms_normalise(x, torch.ones(8, dtype=F64), 1e-5),
    "softmax": lambda x: x.softmax(-1),
    "log softmax": lambda x: x.log_softmax(-1),
    "mean": lambda x: x.mean(-1),
    "product": lambda x: x @ x.t(),
    "gelu": F.gelu,
}


@pytest.mark.parametrize("dtype", list(NAMES), ids=str)
@pytest.mark.parametrize("name", ROUNDING)
def test_what_rounds_has_a_spread_of_the_size_of_its_rounding(
    name: str, dtype: torch.dtype
) -> None:
    function, x = ROUNDING[name], torch.randn(6, 8, dtype=F64)
    upstream = torch.randn_like(function(x))

    def both(x: Tensor) -> Tensor:
        leaf = x.clone().requires_grad_()
        y = function(leaf)
        (grad,) = torch.autograd.grad(y, leaf, upstream)
        return torch.cat([y.detach().flatten(), grad.flatten()])

    sigma = alone(noisy(both, x, dtype=dtype, degree=2)).sigma
    unit = torch.finfo(dtype).eps / 2
    assert sigma.isfinite().all() and (sigma > 0).double().mean() > 0.9
    assert 0.01 * unit < float(sigma.median()) < 100 * unit


def test_a_masked_softmax_and_an_in_place_sum_stay_finite() -> None:
    mask = torch.ones(5, 5, dtype=torch.bool).triu(1)

    def scores(x: Tensor) -> Tensor:
        total = x.masked_fill(mask, -torch.inf).softmax(-1).clone()
        return total.add_(x, alpha=0.5)

    sigma = alone(noisy(scores, torch.randn(5, 5, dtype=F64), dtype=torch.float32, degree=2)).sigma
    assert sigma.isfinite().all() and float(sigma.max()) > 0


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_a_gelu_cut_otherwise_stays_inside_where_its_terms_cancel(approximate: str) -> None:
    """torch's kernel treats the last elements of a tensor otherwise than the rest."""

    def gelu(x: Tensor) -> Tensor:
        return F.gelu(x, approximate=approximate)

    x = -torch.linspace(2.0, 5.0, 64, dtype=torch.float32)
    exact = gelu(x.double())
    found = spread(
        noisy(gelu, x.double(), dtype=torch.float32, degree=1), torch.zeros(64), dtype=x.dtype
    )
    limit = found.elementwise_limit(x.numel()) * found.sigma
    for result in (gelu(x), torch.cat([gelu(part) for part in x.split(3)])):
        assert ((result.double() - exact).abs() <= limit).all()
    assert (exact.abs() > limit)[:32].all(), "a value left out is still seen"


SATURATED: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor], float]] = {
    "silu": (F.silu, lambda x: x * x.sigmoid(), 18.0),
    "mish": (F.mish, lambda x: x * F.softplus(x).tanh(), 9.0),
    "gelu": (
        lambda x: F.gelu(x, approximate="tanh"),
        lambda x: 0.5 * x * (1 + (math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)).tanh()),
        5.5,
    ),
}


@pytest.mark.parametrize("name", SATURATED)
def test_derivatives_stay_inside_where_a_function_has_saturated(name: str) -> None:
    """What is left of 1 − s in float32 is rounding, and it is times x."""
    function, by_parts, end = SATURATED[name]

    def derivative(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        def of(x: Tensor) -> Tensor:
            leaf = x.clone().requires_grad_()
            return torch.autograd.grad(function(leaf).sum(), leaf)[0]

        return of

    x = torch.linspace(end / 4, end, 4096)
    exact = derivative(function)(x.double())
    deviations = noisy(derivative(function), x.double(), dtype=x.dtype, degree=1)
    sigma = spread(deviations, torch.zeros(4096), dtype=x.dtype).sigma
    for right in (function, by_parts):
        off = derivative(right)(x).double() - exact
        strayed = float((off / sigma).square().mean().sqrt())
        assert 0.1 < strayed < 1.5 and (off.abs() <= 4 * sigma).all(), strayed


@pytest.mark.parametrize("equal", [True, False], ids=["equal", "different"])
def test_terms_added_onto_a_large_addend_stay_inside(equal: bool) -> None:
    """As BLAS adds a product to what is there. Equal terms have equal rounding errors, which all
    point one way."""
    terms, count = 256, 40
    bias = torch.linspace(1.0, 1.9, count)
    x, w = torch.full((1, terms), 0.0036), torch.full((count, terms), 0.0672)
    if not equal:
        x, w = x * torch.randn_like(x), w * torch.randn_like(w)
    total = bias.clone()
    for k in range(terms):
        total += x[0, k] * w[:, k]
    given = (bias.double(), x.double(), w.double().t())
    off = (total.double() - torch.addmm(*given)[0]).abs()
    deviations = noisy(torch.addmm, *given, dtype=torch.float32, degree=1)
    found = spread(deviations, torch.zeros(1, count), dtype=torch.float32)
    assert (off <= found.elementwise_limit(count) * found.sigma[0]).all()


def test_a_partial_sum_that_overflows_is_not_judged() -> None:
    """In float16 Σ_k a_k b_k may be small and one rank's part of it beyond 65504."""
    x = torch.full((1, 4), 300.0, dtype=F64)
    w = torch.tensor([[300.0, 1.0], [300.0, 1.0], [-300.0, 1.0], [-300.0, 1.0]], dtype=F64)
    for dtype, judged_columns in ((torch.float16, [False, True]), (torch.float32, [True, True])):
        found = spread(noisy(torch.mm, x, w, dtype=dtype, degree=2), torch.zeros(1, 2), dtype=dtype)
        assert found.sigma.isfinite().tolist() == [judged_columns]
    after = spread(
        noisy(lambda a, b: (a @ b).sum(1), x, w, dtype=torch.float16, degree=2),
        torch.zeros(1),
        dtype=torch.float16,
    )
    assert not after.sigma.isfinite().any()


@pytest.mark.parametrize("size", [1.0, 20.0], ids=str)
def test_flash_attention_is_inside_however_large_its_scores(size: float) -> None:
    """It keeps log Σ exp of each row, in hundreds here, and backward starts from that; the noise
    is that of the decomposed form, which keeps the probabilities."""
    rng = torch.Generator().manual_seed(3)
    q, k, v, upstream = (torch.randn(2, 4, 12, 2, generator=rng).double() for _ in range(4))
    q, k = (size * q).float().double(), (size * k).float().double()

    def gradient(backend: SDPBackend, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
        def of(v: Tensor) -> Tensor:
            leaf = v.to(dtype).requires_grad_()
            with sdpa_kernel([backend]):
                y = F.scaled_dot_product_attention(q.to(dtype), k.to(dtype), leaf, is_causal=True)
            return torch.autograd.grad(y, leaf, upstream.to(dtype))[0]

        return of

    exact = gradient(SDPBackend.MATH, F64)
    own = exact(v) - gradient(SDPBackend.MATH, torch.float32)(v)
    found = spread(noisy(exact, v, dtype=torch.float32, degree=1), own, dtype=torch.float32)
    flash = gradient(SDPBackend.FLASH_ATTENTION, torch.float32)(v)
    judged = compare(flash, exact(v), found, name="v", kind=Kind.INPUT_GRAD, rank=0)
    assert judged.mismatch is None


def test_the_spread_is_that_of_flash_attention_where_its_gradient_cancels() -> None:
    """Values that are nearly alike: the gradient of each score is a small difference of two large
    numbers, one of which flash attention takes from its output, as that was stored. The error is
    the same for all keys, so it adds up in what sums over them, a weight's gradient."""
    rng = torch.Generator().manual_seed(5)
    shape, dtype = (2, 4, 64, 2), torch.bfloat16
    q, k, upstream = (torch.randn(shape, generator=rng).to(dtype).double() for _ in range(3))
    v = (4 + torch.randn(shape, generator=rng) / 16).to(dtype).double()

    def gradient(backend: SDPBackend, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
        def of(k: Tensor) -> Tensor:
            leaf = k.to(dtype).requires_grad_()
            with sdpa_kernel([backend]):
                y = F.scaled_dot_product_attention(q.to(dtype), leaf, v.to(dtype))
            return torch.autograd.grad(y, leaf, upstream.to(dtype))[0].double().sum(2)

        return of

    exact = gradient(SDPBackend.MATH, F64)
    own = gradient(SDPBackend.MATH, dtype)(k) - exact(k)
    found = spread(noisy(exact, k, dtype=dtype, degree=1), own, dtype=dtype)
    flash = gradient(SDPBackend.FLASH_ATTENTION, dtype)(k) - exact(k)
    assert float(flash.square().mean()) < float(found.sigma.square().mean())


def test_a_loss_that_keeps_log_sum_exp_is_inside() -> None:
    """One number of each row is rounded, and all gradients of the row are scaled by what was left
    over: a common scale error, where rows are few. Its size is what the noise says."""
    ratios = []
    for seed in range(12):
        rng = torch.Generator().manual_seed(seed)
        logits, target = torch.randn(1, 1025, generator=rng), torch.tensor([seed])

        def gradient(x: Tensor, target: Tensor = target) -> Tensor:
            leaf = x.clone().requires_grad_()
            return torch.autograd.grad(F.cross_entropy(leaf, target), leaf)[0]

        top = logits.amax(-1, keepdim=True)
        total = top + (logits - top).exp().sum(-1, keepdim=True).log()  # as it is stored
        kept = (logits - total).exp() - F.one_hot(target, 1025)
        exact = gradient(logits.double())
        own = gradient(logits) - exact
        deviations = noisy(gradient, logits.double(), dtype=torch.float32, degree=1)
        sigma = spread(deviations, own, dtype=torch.float32).sigma
        gain, _ = scale(exact, sigma, deviations, own, [], repeats=1)
        ratios.append(projection.project(exact, sigma, kept - exact) / gain)
    assert 0.3 < torch.tensor(ratios).square().mean().sqrt() < 1.0


@pytest.mark.parametrize("count", [63, 296, 1025])
def test_the_mean_of_equal_numbers_may_be_off_by_as_many_roundings(count: int) -> None:
    """Each addition rounds alike, and what is left of the mean is all that a layer norm has."""
    rows = torch.full((3, count), 2.2085)
    total = torch.zeros(())
    for number in rows[0]:
        total = total + number
    off = float(total / count) - float(rows[0, 0])
    scale = 1e-5**-0.5

    def norm(x: Tensor) -> Tensor:
        return F.layer_norm(x, (count,))

    found = spread(
        noisy(norm, rows.double(), dtype=torch.float32, degree=1),
        torch.zeros(3, count),
        dtype=torch.float32,
    )
    limit = found.elementwise_limit(rows.numel()) * found.sigma
    assert abs(off) * scale < float(limit.min())
    other = spread(
        noisy(norm, torch.randn(3, count).double(), dtype=torch.float32, degree=1),
        torch.zeros(3, count),
        dtype=torch.float32,
    )
    assert float(other.sigma.max()) < 1e-6, "of numbers that differ it stays what it was"
