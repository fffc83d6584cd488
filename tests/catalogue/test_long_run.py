"""Faults of a language model that begin at a later step of its training."""

from __future__ import annotations

import pytest

from tests.catalogue.long_run.faults import FAULTS
from tests.catalogue.long_run.model import case_of
from tpcheck.engines.engine import Engine
from tpcheck.search.options import Options
from tpcheck.search.search import Search

#: One that takes no more runs of the reference to be told.
QUICK = ("mask-shared-where-it-must-differ",)


def test_there_are_twelve() -> None:
    assert len({fault.name for fault in FAULTS}) == 12


@pytest.mark.sweep
@pytest.mark.parametrize("name", QUICK)
def test_a_fault_is_told_at_the_step_at_which_it_begins(gloo: Engine, name: str) -> None:
    (fault,) = (fault for fault in FAULTS if fault.name == name)
    check = fault.check(case_of(2, "float32", 0), steps=3, begins=1)
    found = Search(check, gloo, Options(examples=1, corpus=None)).run().counterexample
    assert found is not None
    assert min(mismatch.name.at.step for mismatch in found.mismatches) == 1
    assert found.diagnosis.code in fault.named
