"""Runs at once give what each gives alone."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tpcheck.tensors.lanes import Apart, Lanes, drawn_once, in_run, lanes_of, spread_over

COUNT = 3


def drawn(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """[run, ...]: other numbers in each run."""
    generator = torch.Generator().manual_seed(len(shape))
    return torch.randn((COUNT, *shape), dtype=torch.float64, generator=generator).to(dtype)


def written(x: Tensor, y: Tensor) -> Tensor:
    x = x.clone()
    x[0] = y[1]
    x.mul_(2.0).add_(y, alpha=0.5)
    x.transpose(0, 1)[1:].neg_()
    return x


def optimized(x: Tensor, y: Tensor) -> Tensor:
    average, square = torch.zeros_like(x), torch.zeros_like(x)
    average.lerp_(y, 0.1)
    square.mul_(0.9).addcmul_(y, y, value=0.1)
    return x.clone().addcdiv_(average, square.sqrt().add_(1e-8), value=-0.5)


def of_one_number(x: Tensor, y: Tensor) -> Tensor:
    """A number of another dtype does not change that of a tensor."""
    return x.float() * y.sum().double() + x.sum()


OPERATIONS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "pointwise": lambda x, y: (x * y + 2.0).exp().clamp(max=3.0),
    "broadcast": lambda x, y: x[0] * y + x.sum(0, keepdim=True) / y.mean(),
    "of other ranks": lambda x, y: x[0, 0] + y[0] - x,
    "dtypes": of_one_number,
    "products": lambda x, y: x @ y.T + torch.outer(x[0], y[0])[: len(x), : len(y)],
    "batches": lambda x, y: torch.bmm(x[None].expand(2, -1, -1), y.T[None].expand(2, -1, -1)),
    "views": lambda x, y: x.T.reshape(-1).view(2, -1).unfold(1, 2, 1).contiguous() + y.min(),
    "lists": lambda x, y: torch.cat([x, *y.split(1)], 0).unbind(1)[1],
    "softmax": lambda x, y: F.log_softmax(x, -1) + F.softmax(y, 0),
    "norms": lambda x, y: F.layer_norm(x, [4]) + F.rms_norm(y, [4]),
    "picked": lambda x, y: (
        x[torch.tensor([1, 0])] + y[:, torch.tensor([True, True, False, True])].sum()
    ),
    "embedded": lambda x, y: F.embedding(torch.tensor([[1, 0], [1, 1]]), x) * y[0],
    "where": lambda x, y: torch.where(x > 0, x, y).masked_fill(y > 1.0, -1.0),
    "largest": lambda x, y: x.topk(2, -1).values + y.max(),
    "attention": lambda x, y: F.scaled_dot_product_attention(x[None], y[None], x[None]),
    "written": written,
    "optimized": optimized,
    "cast": lambda x, y: (x.bfloat16() + y.bfloat16()).double(),
    "where in memory": lambda x, y: x.new_zeros(3).index_add(0, torch.tensor([2, 0]), y[:, 0]),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_gives_what_it_gives_alone(name: str) -> None:
    x, y = drawn(2, 4), drawn(2, 4).flip(0)
    found = OPERATIONS[name](Lanes(x), Lanes(y))
    for run in range(COUNT):
        alone = OPERATIONS[name](x[run], y[run])
        own = in_run(found, run)
        assert own.dtype == alone.dtype == found.dtype and found.shape == alone.shape
        assert torch.allclose(own.double(), alone.double(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", OPERATIONS)
def test_with_a_tensor_of_all_runs_too(name: str) -> None:
    x, y = drawn(2, 4), drawn(2, 4)[0]
    if name == "optimized":  # which writes what differs into what is of all
        return
    found = OPERATIONS[name](Lanes(x), y)
    for run in range(COUNT):
        assert torch.allclose(
            in_run(found, run).double(), OPERATIONS[name](x[run], y).double(), rtol=1e-12
        )


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4, bias=False)
        self.norm = nn.LayerNorm(4)
        self.back = nn.Linear(8, 4, bias=False)
        self.back.weight = self.down.weight  # tied
        self.register_buffer("scale", torch.full((4,), 2.0))

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.gelu(self.up(self.norm(x)))
        scale: Any = self.scale
        return self.down(hidden) * scale + self.back(hidden)


def trained(model: nn.Module, x: Tensor, seed: Tensor) -> list[Tensor]:
    """Two steps of AdamW: the parameters, their last gradients and the optimizer's state."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(x).backward(seed)
        optimizer.step()
    state = [t for p in model.parameters() for t in optimizer.state[p].values()]
    return [
        *(p.detach() for p in model.parameters()),
        *(p.grad for p in model.parameters()),
        *state,
    ]


def test_a_model_is_trained_as_alone() -> None:
    torch.manual_seed(0)
    model = Model().double()
    x, seed = drawn(3, 4), drawn(3, 4)
    found = trained(spread_over(copy.deepcopy(model), COUNT), Lanes(x), Lanes(seed))
    for run in range(COUNT):
        alone = trained(copy.deepcopy(model), x[run], seed[run])
        for own, right in zip(found, alone, strict=True):
            assert torch.allclose(in_run(own, run), right, rtol=1e-9, atol=1e-12)


def test_tied_weights_stay_tied() -> None:
    model = Model()
    spread_over(model, COUNT)
    assert model.back.weight is model.down.weight
    assert isinstance(model.down.weight, Lanes) and isinstance(model.scale, Lanes)
    assert len(list(model.parameters())) == 5


def test_what_every_run_decides_alike_is_decided() -> None:
    x = lanes_of(torch.tensor([1.0, -2.0]), COUNT)
    assert float(x.sum()) == -1.0
    assert (x > 0).nonzero().tolist() == [[0]]
    assert bool((x < 0).any())
    picked = x[x > 0]
    assert all(torch.equal(in_run(picked, run), torch.tensor([1.0])) for run in range(COUNT))


@pytest.mark.parametrize(
    "decides",
    [
        lambda x: float(x.sum()),
        lambda x: (x > 0).nonzero(),
        lambda x: x[x > 0],
        lambda x: x.numpy(),
        lambda x: x.data_ptr(),
        torch.utils.dlpack.from_dlpack,
        lambda x: torch.zeros(2).add_(x),
        lambda x: torch.zeros(2).index_put_((torch.tensor([0, 1]),), x),
    ],
)
def test_what_runs_decide_otherwise_is_not(decides: Callable[[Tensor], Any]) -> None:
    x = Lanes(torch.tensor([[1.0, -2.0], [-1.0, 2.0]]))
    with pytest.raises((Apart, RuntimeError)):
        decides(x)


@pytest.mark.parametrize(
    "draw",
    [
        torch.rand_like,
        torch.randn_like,
        torch.bernoulli,
        lambda x: torch.empty_like(x).uniform_(),
        lambda x: torch.empty_like(x).bernoulli_(0.5),
        lambda x: F.dropout(x, 0.5),
    ],
)
def test_no_run_has_random_numbers_of_its_own(draw: Callable[[Tensor], Any]) -> None:
    """They would pass for the rounding of what they decide."""
    with pytest.raises(Apart, match="draws random numbers"):
        draw(lanes_of(torch.full((4,), 0.5), COUNT))


@pytest.mark.parametrize(
    "draw",
    [
        torch.rand_like,
        torch.bernoulli,
        lambda x: x.clone().uniform_(),
        lambda x: x.clone().bernoulli_(0.5),
        lambda x: F.dropout(x, 0.5),
    ],
)
def test_where_each_begins_with_one_seed_all_draw_the_same(
    draw: Callable[[Tensor], Tensor],
) -> None:
    half = torch.full((16,), 0.5)
    with torch.random.fork_rng(), drawn_once():
        torch.manual_seed(0)
        found = draw(lanes_of(half, COUNT))
        torch.manual_seed(0)
        right = draw(half)
    for run in range(COUNT):
        assert torch.equal(in_run(found, run), right)


def test_what_is_drawn_by_numbers_that_differ_is_not_the_same() -> None:
    chances = Lanes(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    for draw in (torch.bernoulli, lambda x: torch.empty(2).bernoulli_(x)):
        with drawn_once(), pytest.raises(Apart):
            draw(chances)
