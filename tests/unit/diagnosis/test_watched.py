"""Which pass is looked into: the one in which a case goes wrong first, if it does in a pass."""

from __future__ import annotations

import pytest

from tpcheck.case import Case
from tpcheck.diagnosis.localise import watched_pass
from tpcheck.tensors.names import FIRST, STEP, Pass
from tpcheck.verdict import CaseResult, Mismatch
from tpcheck.vocabulary import Kind


@pytest.mark.parametrize(
    ("wrong", "at"),
    [
        ([(Kind.OUTPUT, "output@step")], STEP),
        ([(Kind.OUTPUT, "output@step"), (Kind.PARAM_GRAD, "w")], FIRST),
        ([(Kind.PARAM, "w"), (Kind.PARAM_GRAD, "w")], FIRST),
        ([(Kind.INPUT_GRAD, "x@1")], Pass(1)),
        ([(Kind.OUTPUT, "output@1"), (Kind.PARAM_GRAD, "w")], Pass(1)),
        ([(Kind.INPUT_GRAD, "x@1"), (Kind.PARAM_GRAD, "w")], Pass(1)),
        # what a step leaves: the passes after it are right, but for that
        ([(Kind.GRAD_NORM, "norm"), (Kind.PARAM, "w"), (Kind.OUTPUT, "output@step")], None),
        ([(Kind.PARAM, "w"), (Kind.OUTPUT, "output@step")], None),
        ([(Kind.OPTIMIZER_STATE, "w.mean"), (Kind.OUTPUT, "output@step2")], None),
        ([(Kind.OPTIMIZER_STATE, "w.mean@step2"), (Kind.PARAM_GRAD, "w")], FIRST),
        ([], None),
    ],
)
def test_the_first_wrong_pass_is_looked_into(
    wrong: list[tuple[Kind, str]], at: Pass | None
) -> None:
    found = [Mismatch(name, kind, 0, (0,), 1.0, 2.0, 1.0, 0.5) for kind, name in wrong]
    assert watched_pass(CaseResult(Case(), "gloo", found)) == at
