"""Which branches a candidate takes: noted on the ranks where that is asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from fixtures.kernels.rms_norm import rms_norm
from tests import ROOT
from tpcheck import Argument, Case, Check, kernel_check
from tpcheck.engines.engine import Engine
from tpcheck.runner.runner import Runner
from tpcheck.search.options import Options
from tpcheck.search.search import Search
from tpcheck.verdict import CaseResult, Verdict

CASE = Case(dims={"rows": 3, "width": 5}, dtype="float32", mesh={"tp": 1})


class _Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x + x if x.shape[0] > 3 and x.dtype == torch.float32 else 2 * x

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        return dy + dy if dy.shape[0] == 5 else 2 * dy


def doubled(x: Tensor) -> Tensor:
    return _Doubled.apply(x)


ROWS = {"x": Argument("rows", "width")}
CHECK = kernel_check(doubled, reference=lambda x: 2 * x, arguments=ROWS)


def branches(result: CaseResult) -> set[str]:
    assert result.verdict is Verdict.PASS
    return {word for word in result.ways if word.startswith("branch ")}


def test_they_are_noted_where_that_is_asked_for_forward_and_backward(gloo: Engine) -> None:
    runner = Runner(CHECK, gloo, branches=True)
    shown = [
        branches(runner.run(replace(CASE, dims={"rows": rows, "width": 5}))) for rows in (3, 4, 5)
    ]
    assert shown[0] and all(one != other for one, other in pairwise(shown))
    assert branches(runner.run(replace(CASE, seed=9))) == shown[0]
    assert not branches(Runner(CHECK, gloo).run(CASE))


def doubled_by_its_first(x: Tensor) -> Tensor:
    return x + x if x[0, 0] > 0.25 else 2 * x


def test_of_a_kernel_they_are_those_of_its_first_call(gloo: Engine) -> None:
    """Later ones, which say whether it does the same again, have a half less each number."""
    check = kernel_check(doubled_by_its_first, reference=lambda x: 2 * x, arguments=ROWS)
    result = Runner(check, gloo, branches=True).run(CASE)
    assert len(branches(result)) == 1


def test_flags_of_launches_are_noted_and_no_code_of_kernels(gloo: Engine) -> None:
    arguments = {"x": Argument("rows", "width"), "weight": Argument("width")}
    check = kernel_check(
        lambda x, weight: rms_norm(x, weight, 1e-5),
        reference=lambda x, w: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w,
        arguments=arguments,
    )
    result = Runner(check, gloo, branches=True).run(CASE)
    assert {word.split()[0] for word in result.ways} == {"branch", "launch", "mask"}


_FOLLOWED = """
import torch
from fixtures.kernels.rms_norm import rms_norm
from tpcheck.kernels import interpreter
from tpcheck.process.branches import noted

interpreter.install()
with noted() as taken:
    rms_norm(torch.ones(3, 5), torch.ones(5), 1e-5)
print(sorted({name for name, _, _ in taken._taken}))
"""


def test_the_code_of_a_kernel_is_not_followed_in_the_interpreter() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-c", _FOLLOWED]
    names = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert "_RMSNorm.forward" in names.stdout and "rms_norm._forward" not in names.stdout


def wrong_if_traced(x: Tensor) -> Tensor:
    return x * 2 if sys.gettrace() is None else x * 3


def test_what_is_wrong_for_being_watched_alone_is_no_counterexample(gloo: Engine) -> None:
    check: Check = kernel_check(wrong_if_traced, reference=lambda x: 2 * x, arguments=ROWS)
    options = Options(examples=3, degrees=(1,), corpus=None, branches=True)
    result = Search(check, gloo, options).run()
    assert result.verdict is Verdict.PASS and result.examples == 3
