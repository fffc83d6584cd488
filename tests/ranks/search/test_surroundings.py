"""What is around a call of `verify`: the environment of that moment is the ranks', too, and modes
of torch that the caller has entered are nobody's."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import tpcheck
from fixtures.parallel.linear import RowLinear
from properties.linear import row_linear
from tests import candidates
from tpcheck import Case
from tpcheck.engines.engine import Engine
from tpcheck.errors import InvalidArgument
from tpcheck.failed import CheckFailed
from tpcheck.search.corpus import Corpus

LINEAR = Case(candidates.linear_dims(8, 4, batch=2, seq=3, bias=True), "float32", {"tp": 2})
#: Read by the candidate alone; by both.
FAULT, SCALE = "TPCHECK_TEST_FAULT", "TPCHECK_TEST_SCALE"


class Faulty(RowLinear):
    def sum_output(self, partial: torch.Tensor) -> torch.Tensor:
        return partial if os.environ.get(FAULT) else super().sum_output(partial)


def scaled(by: str | None, output: torch.Tensor) -> torch.Tensor:
    return output * float(by or 1)


def faulty(case: Case, mesh: Any) -> nn.Module:
    sizes = case["in_features"], case["out_features"]
    module = Faulty(*sizes, bias=case["bias"], group=mesh["tp"].get_group())
    module.register_forward_hook(lambda *given: scaled(os.environ.get(SCALE), given[2]))
    return module


def reference(case: Case) -> nn.Module:
    module = row_linear.spec.reference(case)
    assert isinstance(module, nn.Module)
    module.register_forward_hook(lambda *given: scaled(os.environ.get(SCALE), given[2]))
    return module


SUBJECT = replace(
    row_linear,
    spec=replace(row_linear.spec, reference=reference, cases=[LINEAR]),
    candidate=faulty,
)


def verified(engine: Engine, corpus: Corpus) -> None:
    tpcheck.verify(SUBJECT, engine=engine, corpus=corpus)


def test_ranks_have_the_environment_of_the_moment(
    gloo: Engine, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified(gloo, corpus)
    monkeypatch.setenv(SCALE, "3")  # of the reference, too
    verified(gloo, corpus)
    monkeypatch.setenv(FAULT, "1")
    with pytest.raises(CheckFailed, match=r"missing-all-reduce"):
        verified(gloo, corpus)
    monkeypatch.delenv(FAULT)
    monkeypatch.delenv(SCALE)
    verified(gloo, corpus)


def autocast() -> torch.autocast:
    return torch.autocast("cpu", torch.bfloat16)


def on_cpu() -> torch.device:
    return torch.device("cpu")


def coarsely_saved() -> torch.autograd.graph.saved_tensors_hooks:
    return torch.autograd.graph.saved_tensors_hooks(torch.Tensor.half, torch.Tensor.float)


@pytest.mark.parametrize(
    "mode", [torch.no_grad, torch.inference_mode, autocast, on_cpu, coarsely_saved]
)
def test_modes_of_the_caller_are_not_the_references(
    gloo: Engine, corpus: Corpus, mode: Callable[[], contextlib.AbstractContextManager[None]]
) -> None:
    with mode():
        before = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
        verified(gloo, corpus)
        assert hooks == torch._C._autograd._top_saved_tensors_default_hooks(True)
        assert before == (torch.is_grad_enabled(), torch.is_inference_mode_enabled())
        assert torch.is_autocast_enabled("cpu") is (mode is autocast)


def test_a_mode_that_sees_all_operators_is_refused(gloo: Engine, corpus: Corpus) -> None:
    with (
        FakeTensorMode(),
        pytest.raises(InvalidArgument, match=r"inside of FakeTensorMode, .*: call it outside"),
    ):
        verified(gloo, corpus)
