"""A saved case that its check excludes by now is told, and not run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from tests import candidates
from tpcheck import Argument, Case, Check, Norm, Training, kernel_check, specs
from tpcheck.search.drawing import sample
from tpcheck.search.drawn import strategy_of
from tpcheck.search.excluded import excluded, is_asked, not_replayed
from tpcheck.search.options import Options

ROW = candidates.check(candidates.Row)
DIMS = candidates.linear_dims()


def narrowed(**fields: Any) -> Check:
    return replace(ROW, overrides=fields)


@pytest.mark.parametrize(
    ("fields", "case", "says"),
    [
        ({"memory": ("contiguous", "sliced")}, {"memory": "expanded"},
         "memory=expanded, which is not one of contiguous, sliced"),
        ({"degrees": (4,)}, {}, "tp=2, which is not one of 4"),
        ({"dtypes": ("float64",)}, {"dtype": "bfloat16"},
         "dtype=bfloat16, which is not one of float64"),
        ({"modes": ("eval",)}, {"mode": "frozen"}, "mode=frozen, which is not one of train, eval"),
        ({"dims": {"in_features": [6, 8]}}, {}, "in_features=4, which is not one of 6, 8"),
        ({"dims": {"bias": True}}, {}, "bias=False, which is not one of True"),
        ({"linear": False}, {"integers": True}, "integers=True, which is for specs with linear"),
        ({"norm": Norm()}, {"mode": "all-frozen"}, "mode=all-frozen, which is not one of train"),
        ({"cases": [Case(dims=DIMS, seed=1)]}, {}, "the spec's list of cases has no such case"),
        ({}, {"saved_at": 4}, "saved_at=4, and the check does not save"),
    ],
)  # fmt: skip
def test_what_a_spec_excludes_is_none_of_its_cases(
    fields: dict[str, Any], case: dict[str, Any], says: str
) -> None:
    saved = replace(Case(dims=DIMS), **case)
    why = excluded(narrowed(**fields), saved)
    assert why is not None and says in why
    if fields:
        assert excluded(ROW, saved) is None, "the spec itself has it"


def test_a_check_that_resumes_has_no_dp_axis_unless_gradients_are_shared() -> None:
    spec = replace(ROW.spec, training=Training(lambda named: None), modes=())
    given: Any = {"save": lambda *_: None, "load": lambda *_: None, "resumes": True}
    case = Case(dims=DIMS, mesh={"dp": 2, "tp": 2})
    assert "dp=2" in str(excluded(replace(ROW, spec=spec, **given), case))
    assert excluded(replace(ROW, spec=replace(spec, dp_gradients="mean"), **given), case) is None


def test_of_a_kernel_memory_families_and_named_sizes_are_held() -> None:
    given: Any = {"reference": torch.neg, "arguments": {"x": Argument("n")}}
    kernel = kernel_check(torch.neg, **given)
    few = kernel_check(
        torch.neg, memory=("contiguous",), families=("normal",), sizes={"n": [4, 8]}, **given
    )
    plain = Case(dims={"n": 4}, mesh={"tp": 1})
    for case, says in (
        (replace(plain, memory="padded"), "memory=padded"),
        (replace(plain, family="outlier"), "family=outlier"),
        (replace(plain, dims={"n": 5}), "n=5, which is not one of 4, 8"),
    ):
        assert says in str(excluded(few, case)) and excluded(kernel, case) is None
    assert "tp=2" in str(excluded(kernel, replace(plain, mesh={"tp": 2})))
    assert excluded(few, plain) is None


@pytest.mark.parametrize("make", [specs.row_linear, specs.attention, specs.block])
def test_the_twin_what_is_drawn_is_never_excluded(make: Any) -> None:
    check = Check(make(), ROW.candidate)
    drawn = sample(strategy_of(check, 2, (2, 4), ("float64", "bfloat16"), 4), 40, "excluded")
    assert len(drawn) == 40 and [excluded(check, case) for case in drawn] == [None] * 40


def test_a_case_that_needs_more_ranks_is_told_with_what_to_do() -> None:
    case = Case(dims=DIMS, mesh={"tp": 8})
    assert not_replayed(ROW, case, 8) is None
    assert not_replayed(ROW, case, 4) == "it needs 8 ranks, and there are 4: give --ranks"


def test_a_known_finding_is_run_where_the_run_and_the_spec_have_its_case() -> None:
    case, options = Case(dims=DIMS), Options(degrees=(2,), dtypes=("float64",))
    assert is_asked(ROW, case, options)
    assert not is_asked(ROW, replace(case, mesh={"tp": 4}), options)
    assert not is_asked(ROW, replace(case, dtype="float32"), options)
    assert not is_asked(narrowed(memory=("sliced",)), case, options)
    listed = narrowed(cases=[replace(case, seed=1)])
    assert is_asked(listed, case, options), "it is declared beside a list"
