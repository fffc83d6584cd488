"""The catalogue of mutants: collected once each, and each says what it should show."""

from __future__ import annotations

import fixtures.mutants
from fixtures.mutants import MUTANTS
from tpcheck.mutation.collect import collect
from tpcheck.vocabulary import Code, Kind

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}


def test_every_mutant_says_what_it_should_show() -> None:
    assert len(BY_NAME) == len(MUTANTS) >= 70
    for mutant in MUTANTS:
        assert set(mutant.shows_in) <= set(Kind) and mutant.shows_in, mutant.name
        assert set(mutant.diagnosis) <= set(Code) and mutant.diagnosis, mutant.name
        assert mutant.mechanism and mutant.source, mutant.name


def test_mutants_are_collected_from_modules_once() -> None:
    assert {m.name for m in collect([fixtures.mutants, fixtures.mutants])} == set(BY_NAME)
