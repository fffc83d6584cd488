"""What a check asks of a case besides its values: what may be communicated, what must run, what its
plan promises."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace

import torch

from tpcheck.budget import PHASES, Budget
from tpcheck.case import Case
from tpcheck.check import Check
from tpcheck.errors import InvalidArgument, shown
from tpcheck.oracle.in_time import in_time
from tpcheck.oracle.reference import ask
from tpcheck.runner.planned import Planned, planned
from tpcheck.vocabulary import Phase


class Asked:
    """Of one check.

    Args:
        device: where the ranks have their tensors.
    """

    def __init__(self, check: Check, device: str = "cpu") -> None:
        self.check, self.device = check, device
        self._plans: dict[str, Planned | None] = {}

    def of(self, case: Case, limit: float) -> tuple[Budget | None, Planned | None]:
        """What the case is held to, where there is any, and the check's plan.

        Args:
            limit: seconds that it may take to say so.
        """
        with in_time(self.check.spec, case, limit):
            return self._allowed(case), self._planned(case)

    def _allowed(self, case: Case) -> Budget | None:
        """What the spec allows to communicate, where that is audited, and what must run."""
        allowed = self.budget(case) if self.check.communication else None
        if self.check.witness is None:
            return allowed
        due = ask(self.check.spec, "witness", self.check.witness, case)
        try:
            free = Budget(None, None, at_least=due)
        except InvalidArgument:
            raise InvalidArgument(
                f"witness(case) returned {shown(due)}; give (phase, name) → how often it must run, "
                f'as in {{("forward", "all_reduce"): 1}}; a phase is one of {", ".join(PHASES)}'
            ) from None
        if self.check.kernel is not None and any(phase == Phase.STEP for phase, _ in due):
            raise InvalidArgument(
                f"witness(case) returned {shown(due)}; a function of tensors takes no step: name "
                "what must run in forward or backward"
            )
        return free if allowed is None else allowed + replace(free, forward={}, backward={})

    def budget(self, case: Case) -> Budget | None:
        """What the spec allows a microbatch of this case to communicate; None for anything.

        Raises:
            InvalidArgument: the spec's `budget` raises, or returns something else.
        """
        spec = self.check.spec
        with self._where_ranks_are():
            found = ask(spec, "budget", spec.budget, case) if spec.budget else None
        if found is None or isinstance(found, Budget):
            return found
        raise InvalidArgument(
            f"spec {spec.name!r}: budget(case) returned a {type(found).__name__}, not a Budget "
            "(or None, which allows anything)"
        )

    @contextlib.contextmanager
    def _where_ranks_are(self) -> Iterator[None]:
        """What autograd saves depends on the kernels of a device, and on whether they must be
        repeatable: of attention, say."""
        if self.device == "cpu":
            yield
            return
        found = torch._C._get_deterministic_algorithms()
        only_warns = torch._C._get_deterministic_algorithms_warn_only()
        torch._C._set_deterministic_algorithms(True, warn_only=True)  # as on ranks
        try:
            with torch.device(self.device):
                yield
        finally:
            torch._C._set_deterministic_algorithms(found, warn_only=only_warns)

    def _planned(self, case: Case) -> Planned | None:
        """The check's plan in this case; it depends on the sizes and the degree alone."""
        if self.check.plan is None:
            return None
        key = json.dumps([case.dims, case.tp], sort_keys=True, default=str)
        if key not in self._plans:
            self._plans[key] = planned(self.check.spec, self.check.plan, case)
        return self._plans[key]
