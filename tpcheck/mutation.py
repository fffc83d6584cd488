"""`Mutant`: a correct candidate with one edit that makes it wrong, and what should find it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tpcheck.spec import Check, Spec

if TYPE_CHECKING:
    from torch import Tensor

    from tpcheck.spec import Candidate


@dataclass(frozen=True, eq=False)
class Mutant:
    """One wrong candidate.

    Args:
        name: says the edit, as in `row_linear_without_all_reduce`.
        spec: what the correct candidate satisfies and this one does not.
        candidate: `build(case, mesh)`, a few lines over the correct one.
        mechanism: what is wrong, in a sentence.
        source: where it was seen: a document, a paper, a public issue; "–" where it is ours.
        shows_in: the kinds of evidence (`verdict.KINDS`) of which one must kill it.
        diagnosis: the codes of which one must be given.
        load: the candidate's own loader, where the loader is what is wrong.
    """

    name: str
    spec: Spec
    candidate: Candidate
    mechanism: str
    source: str
    shows_in: tuple[str, ...]
    diagnosis: tuple[str, ...]
    load: Callable[[Any, Mapping[str, Tensor]], None] | None = None

    @property
    def check(self) -> Check:
        """The check that must fail."""
        return Check(self.spec, self.candidate, name=self.name, load=self.load)
