"""Which inputs are one tensor, and which take a gradient: by the case alone."""

from __future__ import annotations

import torch
from torch import Tensor

from tpcheck.case import Case
from tpcheck.tensors.leaves import aliased, asked, leaves

INPUTS = {
    "x": torch.zeros(2, 3),
    "y": torch.ones(2, 3),
    "index": torch.zeros(2, 3, dtype=torch.long),
    "z": torch.ones(3),
}


def made(case: Case, **more: object) -> dict[str, Tensor]:
    def make(name: str, full: Tensor, asked: bool) -> Tensor:
        return full.clone().requires_grad_(asked)

    return leaves(case, INPUTS, make, **more)  # type: ignore[arg-type]


def test_each_input_is_a_leaf_of_its_own_and_floats_take_a_gradient() -> None:
    found = made(Case())
    assert list(found) == list(INPUTS) and len(set(map(id, found.values()))) == 4
    assert [leaf.requires_grad for leaf in found.values()] == [True, True, False, True]


def test_floats_of_one_shape_are_one_tensor_in_an_aliased_case() -> None:
    case = Case(memory="aliased", mesh={"tp": 1})
    found = made(case)
    assert found["x"] is found["y"] and len(set(map(id, found.values()))) == 3
    assert torch.equal(aliased(case, INPUTS)["y"], INPUTS["x"])
    assert aliased(Case(), INPUTS)["y"] is INPUTS["y"]


def test_what_another_rank_has_is_left_out_and_changes_no_choice() -> None:
    for seed in range(20):
        case = Case(gradients="some", seed=seed)
        whole, part = made(case), made(case, here=lambda name: name != "x")
        assert list(part) == ["y", "index", "z"]
        assert all(part[n].requires_grad == whole[n].requires_grad for n in part)


def test_some_are_neither_none_nor_all_and_each_is_asked_for_in_some_case() -> None:
    names = ["a", "b", "c"]
    assert asked(Case(), names) == names
    chosen = [tuple(asked(Case(gradients="some", seed=seed), names)) for seed in range(60)]
    assert all(1 <= len(one) <= 2 for one in chosen)
    assert len(set(chosen)) == 6
    assert asked(Case(gradients="some"), ["a"]) == ["a"]
