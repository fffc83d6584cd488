"""Mutants: correct candidates with one edit that makes them wrong. They show that checks can fail.

`tpcheck mutants` searches each for a counterexample, as it would any check, and compares the
evidence and the diagnosis with what the mutant says of itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tpcheck.check import Check
from tpcheck.discipline import Kernel
from tpcheck.errors import listed
from tpcheck.given import A_NAME, demand, demand_callables, is_name
from tpcheck.relation import Relation
from tpcheck.spec import Spec
from tpcheck.vocabulary import Code, Kind

if TYPE_CHECKING:
    from tpcheck.check import Candidate, Clip, Load, OwnOptimizer, Save, Schedule, Witness


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
        save: the candidate's own checkpoint, as `Check` takes it.
        resumes: whether it is one of training, likewise.
        plan: the plan that the candidate is built by, as `Check` takes it.
        schedule: the candidate's own order of forwards and backwards, as `Check` takes it.
        clip: how the candidate clips its gradients, as `Check` takes it.
        optimizer: the candidate's own, as `Check` takes it.
        kernel: what a kernel is held to besides its values, as `Check` takes it.
        witness: what must run, as `Check` takes it.
        same_as: what the candidate is to be the same as, as `Relation` takes it, where the spec has
            no reference.
        adjoint: as `Relation` takes it.
    """

    name: str
    spec: Spec
    candidate: Candidate
    mechanism: str
    source: str
    shows_in: tuple[str, ...]
    diagnosis: tuple[str, ...]
    load: Load | None = None
    save: Save | None = None
    resumes: bool = False
    witness: Witness | None = None
    plan: Any = None
    schedule: Schedule | None = None
    clip: Clip | None = None
    optimizer: OwnOptimizer | None = None
    kernel: Kernel | None = None
    same_as: Candidate | None = None
    adjoint: bool = False

    def __post_init__(self) -> None:
        for name in ("name", "mechanism", "source"):
            value = getattr(self, name)
            demand(self, name, isinstance(value, str) and value.isprintable(), "a printable text")
        demand(self, "name", is_name(self.name), A_NAME)
        demand(self, "spec", isinstance(self.spec, Spec), "a Spec, as specs.*() returns")
        demand_callables(self, "candidate")
        optional = "load save schedule clip optimizer witness same_as"
        demand_callables(self, *optional.split(), optional=True)
        rules = self.kernel is None or isinstance(self.kernel, Kernel)
        for flag in ("adjoint", "resumes"):
            demand(self, flag, isinstance(getattr(self, flag), bool), "True or False")
        demand(self, "kernel", rules, "a Kernel, as kernel_check sets it, or None")
        for name, known in (("shows_in", Kind), ("diagnosis", Code)):
            value, codes = getattr(self, name), [code.value for code in known]
            fits = (
                isinstance(value, (tuple, list)) and bool(value) and all(v in codes for v in value)
            )
            demand(self, name, fits, f"a tuple of {known.__name__}s: some of {listed(codes)}")

    @property
    def check(self) -> Check:
        """The check that must fail."""
        if self.spec.reference is None:
            return Relation(**self._parts(), same_as=self.same_as, adjoint=self.adjoint)
        return Check(**self._parts())

    def _parts(self) -> dict[str, Any]:
        return dict(
            spec=self.spec,
            candidate=self.candidate,
            name=self.name,
            load=self.load,
            save=self.save,
            resumes=self.resumes,
            communication=self.spec.budget is not None,
            plan=self.plan,
            schedule=self.schedule,
            clip=self.clip,
            optimizer=self.optimizer,
            kernel=self.kernel,
            witness=self.witness,
        )
