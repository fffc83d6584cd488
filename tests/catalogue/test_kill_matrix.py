"""Every mutant dies, by evidence of a kind and under a name that were expected: a survivor fails
the suite, and so does a wrong diagnosis.

Broken plans are mutants, too: `test_broken_plans.py`; those of Megatron-core need ranks that have
loaded it: `tests/ranks/adapters/test_megatron.py`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from fixtures.mutants import MUTANTS
from fixtures.mutants.build import row
from tests.catalogue.test_broken_plans import BROKEN
from tests.kills import killed
from tpcheck.engines.engine import Engine
from tpcheck.mutant import Mutant

ELSEWHERE = {broken.name for broken in BROKEN}
HERE = [mutant for mutant in MUTANTS if mutant.name not in ELSEWHERE]


@pytest.mark.parametrize("mutant", HERE, ids=lambda m: m.name)
def test_the_mutant_is_killed_and_named(gloo: Engine, mutant: Mutant) -> None:
    killed(mutant, gloo)


def test_every_mutant_is_in_the_matrix_here_or_there() -> None:
    assert {mutant.name for mutant in MUTANTS} >= ELSEWHERE
    assert len(HERE) + len(ELSEWHERE) == len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"shows_in": ("hang",)}, "Kind.OUTPUT"),
        ({"diagnosis": ("summed-twice",)}, "an all-reduce is missing"),
    ],
    ids=["another kind", "another name"],
)
def test_the_twin_a_mutant_that_is_not_what_it_says_is_seen(
    gloo: Engine, change: dict[str, tuple[str, ...]], says: str
) -> None:
    (mutant,) = (m for m in MUTANTS if m.name == "row_linear_without_all_reduce")
    with pytest.raises(AssertionError, match=says):
        killed(replace(mutant, **change), gloo)


def test_the_twin_a_mutant_that_survives_is_seen(gloo: Engine) -> None:
    (mutant,) = (m for m in MUTANTS if m.name == "row_linear_without_all_reduce")
    right = replace(mutant, candidate=row.candidate())
    with pytest.raises(AssertionError, match="survived"):
        killed(right, gloo)
