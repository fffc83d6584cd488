"""What is done with a module by the case alone: which parameters are frozen, and eval mode."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tpcheck.case import MODES, Case
from tpcheck.tensors import case_mode


class Model(nn.Module):
    """Eight linear layers, of which two share a weight, and a norm that is always in eval mode."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2, 2, bias=False) for _ in range(8))
        self.layers[7].weight = self.layers[0].weight
        self.norm = nn.BatchNorm1d(2).eval()
        self.fixed = nn.Parameter(torch.zeros(1), requires_grad=False)


def entered(mode: str, seed: int = 0) -> Model:
    model = Model()
    case_mode.enter(Case(mode=mode, seed=seed), model)
    return model


def frozen(model: Model) -> set[str]:
    named = model.named_parameters(remove_duplicate=False)
    return {name for name, p in named if not p.requires_grad} - {"fixed"}


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode not in case_mode.FREEZING])
def test_nothing_is_frozen_in_other_modes(mode: str) -> None:
    model = entered(mode)
    assert not frozen(model) and case_mode.frozen_in(model) == {"fixed"}
    assert model.training == (mode != "eval") and not model.norm.training


def test_about_half_is_frozen_by_the_seed_and_tied_weights_together() -> None:
    chosen = [frozen(entered("frozen", seed)) for seed in range(20)]
    assert all(0 < len(names) < 10 for names in chosen) and len(set(map(frozenset, chosen))) > 10
    assert {"layers.0.weight" in names for names in chosen} == {True, False}
    assert all(("layers.0.weight" in n) == ("layers.7.weight" in n) for n in chosen)
    assert frozen(entered("frozen", 3)) == chosen[3]


def test_a_single_parameter_is_frozen_whatever_the_seed() -> None:
    for seed in range(8):
        one = nn.Linear(2, 2, bias=False)
        case_mode.enter(Case(mode="frozen", seed=seed), one)
        assert not one.weight.requires_grad


def test_all_are_frozen_and_told_to_the_ranks() -> None:
    case, model = Case(mode="all-frozen"), entered("all-frozen")
    names = case_mode.frozen_in(model)
    assert names == {name for name, _ in model.named_parameters(remove_duplicate=False)}
    other = Model()
    case_mode.enter(case, other, {"layers.0.weight"})
    assert frozen(other) == {"layers.0.weight", "layers.7.weight"}, "those that it is told of"


def test_after_inference_each_part_is_in_its_own_mode() -> None:
    model = Model()
    with case_mode.inference(model):
        assert not model.training and not model.layers[0].training
        assert not torch.is_grad_enabled()
    assert model.training and model.layers[0].training and not model.norm.training
    assert torch.is_grad_enabled()


def test_functions_have_no_modes() -> None:
    case_mode.enter(Case(mode="frozen"), torch.relu)
    assert case_mode.frozen_in(torch.relu) == frozenset()
    with case_mode.inference(torch.relu):
        assert not torch.is_grad_enabled()
