"""A mutant under the search that any check has, as `tpcheck mutants` runs it."""

from __future__ import annotations

from dataclasses import replace

from tpcheck.causes.structure import DiagnosisFailed
from tpcheck.engines.engine import Engine
from tpcheck.mutant import Mutant
from tpcheck.mutation import matrix
from tpcheck.search.search import Search
from tpcheck.verdict import CaseResult, Counterexample

#: Those of `tpcheck mutants`, but that a failure is looked for at lower degrees, as in a check's
#: own run.
OPTIONS = replace(matrix.options(examples=100), lower_cases=matrix.SHRINK_CASES)


def dies(mutant: Mutant, engine: Engine, *, examples: int = OPTIONS.examples) -> CaseResult:
    """The first case that fails, neither made smaller nor named; fails where there is none, or not
    by the evidence that the mutant says of itself."""
    options = replace(OPTIONS, shrink_cases=0, examples=examples)
    found = Search(mutant.check, engine, options).hunt.run(None)
    assert found is not None, f"{mutant.name} survived"
    kinds = {m.kind for m in found.mismatches}
    assert kinds & set(mutant.shows_in), (kinds, found.mismatches[0])
    return found


def killed(mutant: Mutant, engine: Engine, *, examples: int = OPTIONS.examples) -> Counterexample:
    """The counterexample; fails where there is none, or not by the evidence or under the name
    that the mutant says of itself."""
    options = replace(OPTIONS, examples=examples)
    found = Search(mutant.check, engine, options).run().counterexample
    assert found is not None, f"{mutant.name} survived"
    kinds = {m.kind for m in found.mismatches}
    assert kinds & set(mutant.shows_in), (kinds, found.mismatches[0])
    assert not isinstance(found.diagnosis.cause, DiagnosisFailed), found.diagnosis.message
    assert found.diagnosis.code in mutant.diagnosis, found.diagnosis.message
    return found
