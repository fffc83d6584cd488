"""The template for the candidate that is under check: one at a time."""

from __future__ import annotations

import sys

from tpcheck.engines import Kind
from tpcheck.engines.template_process import TemplateProcess
from tpcheck.engines.zygote_process import ZygoteProcess
from tpcheck.protocol.messages import Teach


class Templates:
    """Begins the template for a candidate, keeps it until there is one that imports something else,
    and knows the imports for which none can be used.

    Args:
        kind: of engine.
    """

    def __init__(self, kind: Kind) -> None:
        # elsewhere a process that is killed leaves what it has forked; CUDA does not survive a
        # fork, and agents have none
        self._here = sys.platform == "linux" and kind.device == "cpu" and kind.name != "torchrun"
        self._current: TemplateProcess | None = None
        self._refused: set[str] = set()
        self._begun = 0

    @property
    def pid(self) -> int | None:
        """The number of the current one's process, where it is known."""
        return self._current.pid if self._current else None

    def possible(self, candidate: Teach | None) -> bool:
        """Whether the candidate may have one, as far as is known."""
        return self._here and candidate is not None and candidate.imports not in self._refused

    def of(self, candidate: Teach | None) -> TemplateProcess | None:
        """The one for this candidate, where there is one."""
        found = self._current
        if (
            found is None
            or candidate is None
            or found.imports != candidate.imports
            or not found.alive
        ):
            return None
        return found

    def begun(self, zygote: ZygoteProcess, candidate: Teach | None) -> TemplateProcess | None:
        """The one for this candidate, which may still be importing; None where none can be used.

        Raises:
            EngineUnavailable: the zygote is gone.
        """
        if candidate is None or not self.possible(candidate):
            return None
        found = self.of(candidate)
        if found is None:
            self.end()
            self._begun += 1
            try:
                found = TemplateProcess(zygote, candidate, f"template {self._begun}")
            except OSError:  # the ranks are told of it
                return None
            self._current = found
        return found

    def refuse(self, template: TemplateProcess) -> None:
        """Ends one that can't be used; candidates with its imports get no other."""
        self._refused.add(template.imports)
        if template is self._current:
            self.end()

    def end(self) -> None:
        """Ends the one that there is."""
        if self._current is not None:
            self._current.close()
            self._current = None
