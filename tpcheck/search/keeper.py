"""The keeper: a check's failing cases on their way to the corpus, and how to see one again."""

from __future__ import annotations

import json
from typing import Any

from tpcheck.case import Case
from tpcheck.check import Check
from tpcheck.errors import InvalidArgument
from tpcheck.report import as_json
from tpcheck.report.files import uninterrupted
from tpcheck.search.corpus import Saved, is_outside
from tpcheck.search.options import Options
from tpcheck.verdict import CaseResult, Diagnosis
from tpcheck.vocabulary import Code


class Keeper:
    """Saves what fails: at once, and again under its diagnosis when it has shrunk.

    Args:
        engine: the name of the engine that the search runs on.
    """

    def __init__(self, check: Check, engine: str, options: Options) -> None:
        self.check, self.engine, self.options = check, engine, options
        self._larger: set[str] = set()  # saved before they were shrunk
        self._ids: dict[str, str] = {}  # canonical case → what it was saved as
        self._unsaved = ""  # why the last one is not in the corpus

    def save_at_once(self, found: CaseResult) -> None:
        """A case that may shrink: kept before anything else can go wrong."""
        if self.options.find_only:
            return
        with uninterrupted():
            diagnosis = {"code": Code.UNCLASSIFIED.value, "message": "not yet diagnosed"}
            self._larger.add(self._save(found, diagnosis))

    def has(self, case: Case) -> bool:
        """Whether this run saved it."""
        return case.canonical() in self._ids

    def save(self, found: CaseResult, diagnosis: Diagnosis) -> str:
        """The counterexample's id; it is in the corpus now, if there is one."""
        with uninterrupted():
            return self._save(found, as_json.diagnosis(diagnosis))

    def _save(self, found: CaseResult, diagnosis: dict[str, Any]) -> str:
        title = self.check.title
        if self.options.corpus is None:
            return found.case.id(title)
        address = self.check.address()
        identity = self.options.corpus.identity(title, address, found.case)
        self._ids[found.case.canonical()] = identity
        entry = Saved(
            id=identity,
            check=title,
            address=address,
            case=found.case,
            engine=self.engine,
            mismatches=found.mismatches,
            diagnosis=diagnosis,
            spec=self.check.spec.name,
        )
        try:
            self.options.corpus.save(entry)
        except InvalidArgument as error:  # a full disk must not cost the counterexample
            self._unsaved = str(error)
        else:
            self._unsaved = ""
        return identity

    def forget_larger(self, found: CaseResult) -> None:
        """The first failing case of each degree was saved at once; the shrunk one takes their
        place."""
        if self.options.corpus is not None and not self._unsaved:
            for larger in self._larger - {self._ids.get(found.case.canonical(), "")}:
                self.options.corpus.remove(larger)

    def reproduce(self, identity: str, case: Case) -> str:
        """What to paste, or to do, to see a saved case again."""
        corpus = self.options.corpus
        if corpus is None:
            return ""
        if self._unsaved:
            alone = f"cases=[Case.from_dict({json.loads(case.canonical())})]"
            return f"give its spec {alone} (not saved: {self._unsaved})"
        if (address := self.check.address()) is None:
            return f"run this again: the saved case {identity} comes first"
        return corpus.command(identity, trust=is_outside(address[0]))
