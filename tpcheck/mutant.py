"""Mutants: correct candidates with one edit that makes them wrong. They show that checks can fail.

`tpcheck mutants` searches each for a counterexample, as it would any check, and compares the
evidence and the diagnosis with what the mutant says of itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tpcheck.spec import Check, Spec

if TYPE_CHECKING:
    from torch import Tensor

    from tpcheck.spec import Candidate, Schedule


@dataclass(frozen=True, eq=False)
class Mutant:
    """One wrong candidate.

    Args:
        name: says the edit, as in `row_linear_without_all_reduce`.
        spec: what the correct candidate satisfies and this one does not.
        candidate: `build(case, mesh)`, a few lines over the correct one.
        mechanism: what is wrong, in a sentence.
        source: where it was seen: a document, a paper, a public issue; "–" where it is ours.
        shows_in: the kinds of evidence (`vocabulary.Kind`) of which one must kill it.
        diagnosis: the codes (`vocabulary.Code`) of which one must be given.
        load: the candidate's own loader, where the loader is what is wrong.
        plan: the plan that the candidate is built by, as `Check` takes it.
        schedule: the candidate's own order of forwards and backwards, as `Check` takes it.
    """

    name: str
    spec: Spec
    candidate: Candidate
    mechanism: str
    source: str
    shows_in: tuple[str, ...]
    diagnosis: tuple[str, ...]
    load: Callable[[Any, Mapping[str, Tensor]], None] | None = None
    plan: Any = None
    schedule: Schedule | None = None

    @property
    def check(self) -> Check:
        """The check that must fail."""
        return Check(
            self.spec,
            self.candidate,
            name=self.name,
            load=self.load,
            communication=True,
            plan=self.plan,
            schedule=self.schedule,
        )
