"""What a rank's parameters are filled from, and what is said where it has none."""

from __future__ import annotations

from typing import Any

import pytest
from torch.nn import functional as F

from tests import candidates
from tpcheck import Check
from tpcheck.diagnosis.examine import examine_failure
from tpcheck.engines.engine import Engine
from tpcheck.runner.runner import Runner

SPEC = candidates.check(candidates.Row).spec


def nothing(case: Any, mesh: Any) -> Any:
    return None


def function(case: Any, mesh: Any) -> Any:
    return F.relu


@pytest.mark.parametrize(("build", "returned"), [(nothing, "None"), (function, "a function")])
def test_what_is_no_module_is_said_to_have_no_parameters(
    gloo: Engine, build: Any, returned: str
) -> None:
    runner = Runner(Check(SPEC, build), gloo)
    named = examine_failure(runner, runner.run(candidates.CASE)).diagnosis
    assert named.code == "plan-entry-unmatched"
    said = f"the candidate has no 'weight': its build(case, mesh) returned {returned}, not a module"
    assert named.message == said
