"""The file of a case's tensors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from tpcheck.bounds.spread import Spread
from tpcheck.placement import Replicate
from tpcheck.protocol.bundle import SMALL, read_bundle, write_bundle
from tpcheck.protocol.problem import Problem, Target
from tpcheck.vocabulary import Kind


def problem(value: Tensor, sigma: Tensor, **params: Tensor) -> Problem:
    target = Target(Kind.OUTPUT, "y", Replicate(), torch.float32, value, Spread(sigma, 3, 4))
    return replace(Problem(0, dict(params), [{"x": value}]), targets=[target])


def test_tensors_of_one_memory_are_each_written_and_none_is_changed(tmp_path: Path) -> None:
    whole = torch.arange(24.0, dtype=torch.float64).reshape(4, 6)
    given = problem(whole[1:3], whole[2:], tied=whole, cut=whole[:, 2:4], turned=whole.t())
    given = replace(given, terms=frozenset({"cut"}), idle=frozenset({"turned", "tied"}))
    write_bundle([given], tmp_path / "case.safetensors")
    read = read_bundle(tmp_path / "case.safetensors", 0, {("output", "y"): Replicate()}, "cpu")
    assert (read.terms, read.idle) == (given.terms, given.idle)
    assert all(torch.equal(read.params[n], t) for n, t in given.params.items())
    assert read.params.keys() == given.params.keys()
    (target,) = read.targets
    assert torch.equal(target.value, whole[1:3]) and torch.equal(target.spread.sigma, whole[2:])
    assert torch.equal(read.inputs[0]["x"], whole[1:3])
    assert torch.equal(whole, torch.arange(24.0, dtype=torch.float64).reshape(4, 6))


def test_what_has_memory_of_its_own_is_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, shared = torch.ones(3), torch.zeros(4)
    copied: list[int] = []
    clone = Tensor.clone
    monkeypatch.setattr(Tensor, "clone", lambda t: copied.append(t.numel()) or clone(t))
    given = Problem(0, {"alone": alone, "first": shared, "second": shared})
    write_bundle([given], tmp_path / "case.safetensors")
    assert copied == [4]


@pytest.mark.parametrize("together", [True, False])
def test_small_tensors_are_written_as_one_and_large_ones_alone(
    tmp_path: Path, together: bool
) -> None:
    least, most = torch.rand(3, 5, dtype=torch.float64), torch.rand(SMALL + 1).double()
    first, second = problem(least, least + 1), problem(most, -most)
    none = problem(torch.zeros(0, 4).double(), torch.zeros(0, 4).double())
    given = [replace(first, targets=[*first.targets, *second.targets, *none.targets])]
    path = tmp_path / "case.safetensors"
    write_bundle(given, path, together=together)
    with safe_open(path, framework="pt") as file:
        names = {"value/0/1", "sigma/0/1"}
        others = {f"{what}/0/{i}" for what in ("value", "sigma") for i in (0, 2)}
        names |= {"small/0"} if together else others
        assert {name for name in file.keys() if name[:2] != "in"} == names  # noqa: SIM118
    read = read_bundle(path, 0, {("output", "y"): Replicate()}, "cpu").targets
    for again, right in zip(read, given[0].targets, strict=True):
        assert torch.equal(again.value, right.value) and again.value.shape == right.value.shape
        assert torch.equal(again.spread.sigma, right.spread.sigma)
