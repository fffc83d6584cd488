"""Functions that torch itself puts around others."""

from __future__ import annotations

from typing import Any

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


def test_what_torch_wraps_of_another_s_is_put_back() -> None:
    own, before = guard.of_driver(), torch.optim.Rprop.step
    torch.optim.Rprop.step = replaced  # type: ignore[method-assign]
    torch.optim.Rprop([nn.Parameter(torch.zeros(1))])
    assert torch.optim.Rprop.step is not replaced
    assert "torch.optim.rprop.Rprop.step" in {left.name for left in own.restore()}
    assert torch.optim.Rprop.step is before
