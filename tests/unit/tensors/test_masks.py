"""Random masks: what draws one, and how somebody else would have drawn the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from tpcheck.tensors.masks import Chance, Drawing, Mask, bits_of, drops_inside

X = torch.ones(4, 6)
#: Whoever draws → what is true of the other mask that is put in its place: kept, or dropped.
PATTERN = torch.arange(24).reshape(4, 6) % 3 > 0


class Seen(TorchDispatchMode):
    """Notes each mask, and puts `PATTERN` in its place."""

    def __init__(self) -> None:
        super().__init__()
        self.chances: list[Chance] = []
        self.states: list[bytes] = []
        self.drawing = Drawing(self.instead)

    def instead(self, outcome: Tensor, chance: Chance, state: bytes) -> Tensor:
        assert outcome.dtype == torch.bool and outcome.shape == PATTERN.shape
        self.chances.append(chance)
        self.states.append(state)
        return PATTERN

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return self.drawing(func, args, kwargs or {})


KEPT = PATTERN.float()
DRAWS: dict[str, tuple[Callable[[], Tensor], Chance, Tensor]] = {
    "dropout": (lambda: F.dropout(X, 0.25), Chance(0.75), KEPT / 0.75),
    "in place": (lambda: F.dropout(X.clone(), 0.25, inplace=True), Chance(0.75), KEPT / 0.75),
    "native": (lambda: torch.native_dropout(X, 0.25, True)[0], Chance(0.75), KEPT / 0.75),
    "bernoulli_": (lambda: torch.empty_like(X).bernoulli_(0.75), Chance(0.75), KEPT),
    "bernoulli_ of a tensor": (lambda: X.clone().bernoulli_(X * 0.75), Chance(0.75), KEPT),
    "bernoulli": (lambda: torch.bernoulli(X * 0.75), Chance(0.75), KEPT),
    "bernoulli of p": (lambda: torch.bernoulli(X, 0.75), Chance(0.75), KEPT),
    "distribution": (
        lambda: torch.distributions.Bernoulli(X * 0.75).sample(), Chance(0.75), KEPT,
    ),
    "below": (lambda: (torch.rand_like(X) < 0.25).float(), Chance(0.25, kept=False), KEPT),
    "at most": (lambda: (torch.rand(4, 6) <= 0.25).float(), Chance(0.25, kept=False), KEPT),
    "above": (lambda: (torch.rand_like(X) > 0.25).float(), Chance(0.75), KEPT),
    "above, turned": (
        lambda: (torch.tensor(0.25) < torch.rand_like(X)).float(), Chance(0.75), KEPT,
    ),
    "at least": (
        lambda: (torch.empty(4, 6).uniform_() >= torch.tensor(0.25)).float(), Chance(0.75), KEPT,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DRAWS)
def test_each_way_to_draw_a_mask_is_seen_and_gives_the_one_in_its_place(name: str) -> None:
    draw, chance, expected = DRAWS[name]
    with Seen() as seen:
        given = draw()
    (found,) = seen.chances
    assert found.true == pytest.approx(chance.true) and found.kept == chance.kept
    torch.testing.assert_close(given, expected)
    assert not seen.drawing.unread


@pytest.mark.parametrize(
    ("draw", "unread"),
    [
        (lambda: torch.randn_like(X), {"randn_like"}),
        (lambda: torch.rand_like(X) * 2, {"rand"}),
        (lambda: torch.rand_like(X).mul_(2) > 0.25, {"rand"}),
        (lambda: torch.rand_like(X) < torch.linspace(0.1, 0.9, 6), {"rand"}),
        (lambda: [u[:2] > 0.25 for u in [torch.rand_like(X)]], {"rand"}),
        (lambda: torch.empty(3).uniform_(-1, 1) < 0, {"uniform_"}),
        (lambda: torch.bernoulli(torch.linspace(0.1, 0.9, 5)), {"bernoulli"}),
        (lambda: torch.randperm(4), {"randperm"}),
        (lambda: torch.multinomial(torch.ones(4), 2), {"multinomial"}),
    ],
)
def test_what_is_not_a_mask_is_left_and_said(draw: Callable[[], Any], unread: set[str]) -> None:
    with Seen() as seen:
        draw()
    assert not seen.chances and seen.drawing.unread == unread


@pytest.mark.parametrize(
    "draw",
    [
        lambda: F.dropout(X, 0.0),
        lambda: F.dropout(X, 1.0),
        lambda: F.dropout(X, 0.5, training=False),
        lambda: torch.native_dropout(X, 0.5, False),
        lambda: torch.bernoulli(X),
        lambda: X < 0.5,
    ],
)
def test_what_is_not_left_to_chance_is_no_mask(draw: Callable[[], Any]) -> None:
    with Seen() as seen:
        draw()
    assert not seen.chances and not seen.drawing.unread


def test_numbers_that_are_used_as_numbers_too_are_more_than_a_mask() -> None:
    with Seen() as seen:
        numbers = torch.rand_like(X)
        (numbers > 0.25) * numbers
    assert len(seen.chances) == 1 and seen.drawing.unread == {"rand"}


def test_a_gradient_goes_through_the_mask_that_was_put_in_place() -> None:
    x = X.clone().requires_grad_()
    with Seen():
        F.dropout(x, 0.25).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, KEPT / 0.75)


def test_a_forward_that_is_computed_again_draws_from_the_same_state() -> None:
    x = X.clone().requires_grad_()
    states = []
    for keeps in (True, False):
        with Seen() as seen:
            drop = checkpoint(lambda y: F.dropout(y, 0.25), x, use_reentrant=False,
                              preserve_rng_state=keeps)  # fmt: skip
            drop.sum().backward()
        states.append(seen.states)
    (kept, again), (drawn, anew) = states
    assert kept == again and drawn != anew


def test_a_generator_of_ones_own_is_what_is_drawn_from() -> None:
    def state(seed: int) -> bytes:
        with Seen() as seen:
            X.clone().bernoulli_(0.5, generator=torch.Generator().manual_seed(seed))
        return seen.states[0]

    assert state(1) == state(1) != state(2)


MASK = Mask(PATTERN, Chance(0.9))


def test_what_is_kept_for_one_is_what_is_dropped_for_the_other() -> None:
    assert MASK.drawn_as(Chance(0.9)) is PATTERN
    assert MASK.drawn_as(Chance(0.9, kept=False)) is PATTERN
    turned = MASK.drawn_as(Chance(0.1))
    assert turned is not None and torch.equal(turned, ~PATTERN)
    assert MASK.drawn_as(Chance(0.8)) is None and MASK.drawn_as(Chance(0.11)) is None


def test_a_rate_that_was_rounded_is_the_one_that_was_meant() -> None:
    with Seen() as seen:
        torch.bernoulli(torch.full_like(X, 0.9, dtype=torch.bfloat16))
    (rounded,) = seen.chances
    assert rounded.true != 0.9 and MASK.drawn_as(rounded) is PATTERN
    assert MASK.drawn_as(Chance(rounded.true)) is None, "which nothing has rounded"
    rare = Mask(PATTERN, Chance(0.999))
    assert rare.drawn_as(Chance(0.9965)) is None


def test_where_both_are_as_likely_numbers_below_a_threshold_are_dropped() -> None:
    half = Mask(PATTERN, Chance(0.5))
    assert half.drawn_as(Chance(0.5)) is PATTERN
    turned = half.drawn_as(Chance(0.5, kept=False))
    assert turned is not None and torch.equal(turned, ~PATTERN)
    below = Mask(PATTERN, Chance(0.5, kept=False))
    assert below.drawn_as(Chance(0.5, kept=False)) is PATTERN


def test_an_element_of_a_rare_outcome_says_less() -> None:
    assert bits_of(0.5) == 1.0 and bits_of(0.9) == bits_of(0.1) < 0.3


Q, ATEN = torch.ones(1, 1, 2, 2), torch.ops.aten


@pytest.mark.parametrize(
    ("func", "args", "kwargs", "inside"),
    [
        (ATEN._scaled_dot_product_flash_attention.default, (Q, Q, Q, 0.5), {}, True),
        (ATEN._scaled_dot_product_flash_attention.default, (Q, Q, Q), {}, False),
        (ATEN._scaled_dot_product_efficient_attention.default, (Q,) * 3, {"dropout_p": 0.1}, True),
        (ATEN._scaled_dot_product_cudnn_attention.default, (Q, Q, Q, None, True, 0.0), {}, False),
        # these draw by operators of their own
        (ATEN.scaled_dot_product_attention.default, (Q, Q, Q, None, 0.5), {}, False),
        (ATEN._scaled_dot_product_attention_math.default, (Q, Q, Q, None, 0.5), {}, False),
        (ATEN.native_dropout.default, (Q, 0.5, True), {}, False),
    ],
)
def test_what_one_kernel_for_all_of_attention_drops_is_dropped_inside(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], inside: bool
) -> None:
    assert drops_inside(func, args, kwargs) is inside
