"""A kernel is called again on tensors that lie in memory as the first ones did."""

from __future__ import annotations

from properties._kernels.formulas import linear_in_two
from tpcheck import Case
from tpcheck.engines.engine import Engine
from tpcheck.runner.runner import Runner
from tpcheck.verdict import Verdict


def test_what_has_another_consumer_has_the_strides_of_the_input(gloo: Engine) -> None:
    """Of one row, which a view would lay out otherwise: the bits of a product's gradient depend on
    its factors' strides."""
    sizes = {"rows": 1, "width": 15, "depth": 2}
    case = Case(dims=sizes, dtype="float64", mesh={"tp": 1}, memory="transposed", seed=3)
    result = Runner(linear_in_two, gloo).run(case)
    assert result.verdict is Verdict.PASS, result.mismatches
