"""What gathers many numbers into one, and what has no rule of its own: torch's kernels are inside
their limits on any numbers, and a slightly wrong result is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.unit.bounds.noisy import F64, noisy, spread
from tpcheck.bounds.compare import compare
from tpcheck.vocabulary import Kind

ROWS, WIDTH = 6, 128


def rotated(x: Tensor) -> Tensor:
    """By angles, as complex numbers."""
    pairs = torch.view_as_complex(x.reshape(ROWS, WIDTH // 2, 2).contiguous())
    angles = torch.linspace(0.1, 3.0, WIDTH // 2, dtype=x.dtype)
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(1)


def taps(x: Tensor) -> Tensor:
    return torch.linspace(0.3, 1.1, 4 * ROWS, dtype=x.dtype).reshape(ROWS, 1, 4)


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "var": lambda x: x.var(-1, unbiased=False),
    "var of all": lambda x: x.var(),
    "std": lambda x: x.std(-1),
    "var_mean": lambda x: torch.cat([t[:, None] for t in torch.var_mean(x, 1)]),
    "std_mean": lambda x: torch.cat([t[:, None] for t in torch.std_mean(x, 1, keepdim=False)]),
    "l2 norm": lambda x: x.norm(dim=-1),
    "l1 norm": lambda x: torch.linalg.vector_norm(x, 1, dim=-1),
    "largest": lambda x: torch.linalg.vector_norm(x, torch.inf, dim=-1),
    "normalize": lambda x: F.normalize(x, dim=-1),
    "cosine similarity": lambda x: F.cosine_similarity(x, x.flip(0) + x, dim=-1),
    "prod": lambda x: x[:, :9].prod(-1),
    "prod of all": lambda x: x[:2, :7].prod(),
    "cumprod": lambda x: x[:, :9].cumprod(-1),
    "logsumexp": lambda x: x.logsumexp(-1),
    "mse": lambda x: F.mse_loss(x, x.flip(0) / 2),
    "huber": lambda x: F.huber_loss(x, x.flip(0) / 2),
    "cross entropy": lambda x: F.cross_entropy(x, torch.arange(ROWS), reduction="mean"),
    "group norm": lambda x: F.group_norm(x.reshape(2, 3, WIDTH), 3),
    "rms norm": lambda x: F.rms_norm(x, (WIDTH,)),
    "glu": lambda x: F.glu(x),
    "conv1d": lambda x: F.conv1d(x[None], taps(x), groups=ROWS, padding=3),
    "average pool": lambda x: F.avg_pool1d(x[None], 3, 2),
    "interpolation": lambda x: F.interpolate(x[None], scale_factor=2.0, mode="linear"),
    "distances": lambda x: torch.cdist(x, x.flip(1)[1:] + 1),
    "transform": lambda x: torch.fft.irfft(torch.fft.rfft(x) * 1.5),
    "complex rotation": rotated,
    "solution": lambda x: torch.linalg.solve(x[:, :6] + 9 * torch.eye(6, dtype=x.dtype), x),
}

NUMBERS: dict[str, Callable[[], Tensor]] = {
    "normal": lambda: torch.randn(ROWS, WIDTH),
    "shifted": lambda: torch.randn(ROWS, WIDTH) + 30,
    "equal": lambda: torch.randn(ROWS, 1).expand(ROWS, WIDTH).clone(),
}


@pytest.mark.parametrize(
    "numbers", ["normal", "shifted", pytest.param("equal", marks=pytest.mark.sweep)]
)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_kernel_of_torchs_is_inside_its_limits(name: str, numbers: str) -> None:
    function = FUNCTIONS[name]
    torch.manual_seed(7)
    x = NUMBERS[numbers]()
    upstream = torch.randn_like(function(x))

    def both(x: Tensor) -> Tensor:
        leaf = x.detach().clone().requires_grad_()
        y = function(leaf)
        (gradient,) = torch.autograd.grad(y, leaf, upstream.to(x.dtype))
        return torch.cat([y.detach().flatten(), gradient.flatten()])

    exact, own = both(x.double()), both(x)
    deviations = noisy(both, x.double(), dtype=torch.float32, degree=1)
    outputs = upstream.numel()
    for part in (slice(outputs), slice(outputs, None)):
        if numbers == "equal" and name.startswith("std") and part.start:
            continue  # there is no derivative of √0
        found = spread(
            [d[part] for d in deviations], torch.zeros_like(own[part]), dtype=torch.float32
        )
        judged = compare(own[part], exact[part], found, name="x", kind=Kind.OUTPUT, rank=0)
        assert judged.mismatch is None
        wrong = own[part] * 1.01 + 0.01
        judged = compare(wrong, exact[part], found, name="x", kind=Kind.OUTPUT, rank=0)
        assert judged.mismatch is not None, "a hundredth is seen"


def test_what_only_moves_numbers_is_exact_though_it_has_parts() -> None:
    """`pixel_shuffle` and `index_copy` decompose into operations that do not round."""
    x = torch.randn(1, 4, 3, 3, dtype=F64)

    def moved(x: Tensor) -> Tensor:
        return F.pixel_shuffle(x, 2).index_copy(
            2, torch.tensor([0]), x[:, :1, :1].repeat(1, 1, 1, 2)
        )

    assert not torch.stack(noisy(moved, x, dtype=torch.bfloat16, degree=1)).any()
