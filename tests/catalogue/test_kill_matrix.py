"""Every mutant dies, by evidence of a kind that was expected: a survivor fails the suite."""

from __future__ import annotations

import pytest

from fixtures.mutants import MUTANTS
from tpcheck.engines.engine import Engine
from tpcheck.mutation.mutant import Mutant
from tpcheck.search.search import Options, Search


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_the_mutant_is_killed(gloo: Engine, mutant: Mutant) -> None:
    options = Options(examples=100, corpus=None, shrink_seconds=0.0)
    found = Search(mutant.check, gloo, options).run().counterexample
    assert found is not None, f"{mutant.name} survived"
    kinds = {m.kind for m in found.mismatches}
    assert kinds & set(mutant.shows_in), (kinds, found.mismatches[0])
    assert "failed" not in found.diagnosis.evidence, found.diagnosis.message
