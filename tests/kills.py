"""A mutant under the search that any check has, as `tpcheck mutants` runs it."""

from __future__ import annotations

from tpcheck.causes.structure import DiagnosisFailed
from tpcheck.engines.engine import Engine
from tpcheck.mutant import Mutant
from tpcheck.mutation import matrix
from tpcheck.search.search import Search
from tpcheck.verdict import Counterexample

#: Those of `tpcheck mutants`.
OPTIONS = matrix.options(examples=100)


def killed(mutant: Mutant, engine: Engine) -> Counterexample:
    """The counterexample; fails where there is none, or not by the evidence or under the name
    that the mutant says of itself."""
    found = Search(mutant.check, engine, OPTIONS).run().counterexample
    assert found is not None, f"{mutant.name} survived"
    kinds = {m.kind for m in found.mismatches}
    assert kinds & set(mutant.shows_in), (kinds, found.mismatches[0])
    assert not isinstance(found.diagnosis.cause, DiagnosisFailed), found.diagnosis.message
    assert found.diagnosis.code in mutant.diagnosis, found.diagnosis.message
    return found
