"""Functions that torch itself puts around others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from tpcheck.process import guard


def replaced(*args: Any, **kwargs: Any) -> None:
    """In place of a function of torch's."""


def test_what_torch_wraps_in_an_optimizers_class_stays() -> None:
    class Own(torch.optim.SGD):
        pass

    own, plain = guard.of_driver(), Own.step
    parameters = [nn.Parameter(torch.zeros(1))]
    torch.optim.Adagrad(parameters)  # whose class has its `step` wrapped now
    assert torch.optim.Adagrad.step.hooked  # type: ignore[attr-defined]
    assert own.restore() == [] and Own.step is plain


@pytest.fixture
def optimizers() -> Iterator[list[nn.Parameter]]:
    """Parameters. What the first optimizer imports is there, and `step` of Adam and AdamW is none
    that torch has wrapped."""
    parameters = [nn.Parameter(torch.zeros(1))]
    torch.optim.SGD(parameters)
    step = vars(torch.optim.Adam)["step"]
    plain = step.__wrapped__ if hasattr(step, "hooked") else step

    def unwrap() -> None:
        torch.optim.Adam.step = plain  # type: ignore[method-assign]
        if "step" in vars(torch.optim.AdamW):
            del torch.optim.AdamW.step

    unwrap()
    yield parameters
    unwrap()


@pytest.mark.parametrize("others", [[], [torch.optim.Adam]])
def test_what_torch_wraps_of_an_inherited_function_stays(
    optimizers: list[nn.Parameter], others: list[Any]
) -> None:
    own = guard.of_driver()
    for kind in [torch.optim.AdamW, *others]:  # whose own, which is inherited, is then wrapped, too
        kind(optimizers)
    assert own.restore() == [] and "step" in vars(torch.optim.AdamW)


@pytest.mark.parametrize("place", [torch.optim.Adam, torch.optim.AdamW])
def test_what_torch_wraps_of_anothers_inherited_function_is_taken_away(
    optimizers: list[nn.Parameter], place: Any
) -> None:
    own, before = guard.of_driver(), torch.optim.Adam.step
    place.step = replaced
    torch.optim.AdamW(optimizers)
    left = {one.name for one in own.restore()}
    assert "torch.optim.adamw.AdamW.step" in left
    assert "step" not in vars(torch.optim.AdamW) and torch.optim.Adam.step is before


def test_bases_are_put_back_before_what_hides_their_functions() -> None:
    schedulers = torch.optim.lr_scheduler
    own, derived = guard.of_driver(), schedulers.ConstantLR  # by its name before its base
    schedulers.LRScheduler.step = replaced  # type: ignore[method-assign]
    derived.step = torch.optim.Optimizer.profile_hook_step(derived.step)  # type: ignore
    left = {one.name for one in own.restore()}
    assert "torch.optim.lr_scheduler.ConstantLR.step" in left and "step" not in vars(derived)


def test_an_inherited_function_without_what_torch_wraps_is_taken_away(
    optimizers: list[nn.Parameter],
) -> None:
    own = guard.of_driver()
    torch.optim.AdamW.step = torch.optim.Adam.step.__wrapped__  # type: ignore
    assert [one.name for one in own.restore()] == ["torch.optim.adamw.AdamW.step"]


def test_what_torch_wraps_of_another_s_is_put_back() -> None:
    own, before = guard.of_driver(), torch.optim.Rprop.step
    torch.optim.Rprop.step = replaced  # type: ignore[method-assign]
    torch.optim.Rprop([nn.Parameter(torch.zeros(1))])
    assert torch.optim.Rprop.step is not replaced
    assert "torch.optim.rprop.Rprop.step" in {left.name for left in own.restore()}
    assert torch.optim.Rprop.step is before


def test_what_dynamo_wraps_of_modules_stays_and_what_another_does_is_taken_away() -> None:
    from torch._dynamo.mutation_guard import install_generation_tagging_init

    plain = nn.Module.__init__, nn.Module.__setstate__
    patched = getattr(nn.Module, "___needs_generation_tag_patch", True)
    own = guard.of_driver()
    nn.Module.___needs_generation_tag_patch = True  # type: ignore[attr-defined]
    try:
        install_generation_tagging_init()
        assert own.restore() == [] and nn.Module.__init__ is not plain[0]
        nn.Module.__init__ = replaced  # type: ignore[method-assign]
        assert [one.name for one in own.restore()] == ["torch.nn.modules.module.Module.__init__"]
    finally:
        nn.Module.__init__, nn.Module.__setstate__ = plain  # type: ignore[method-assign]
        nn.Module.___needs_generation_tag_patch = patched  # type: ignore[attr-defined]
