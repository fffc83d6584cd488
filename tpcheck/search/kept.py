"""What a kernel keeps between calls: a case that fails after others and passes alone is a fault of
a function of tensors, which is called with one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from tpcheck.case import Case
from tpcheck.causes.reruns import WrongAfter
from tpcheck.diagnosis.facts import subject_of
from tpcheck.report.diagnoses import sentence
from tpcheck.runner.runner import Runner
from tpcheck.search.failures import decided, size_of
from tpcheck.verdict import CaseResult, Counterexample, Diagnosis, Verdict
from tpcheck.vocabulary import Code

#: Earlier cases that are tried before the one that failed, at most, each on ranks of its own. What
#: is kept is mostly of the last few, or of the first of a size.
TRIED = 24


def between_calls(
    runner: Runner, failed: CaseResult, earlier: Sequence[Case]
) -> Counterexample | None:
    """The case again, behind the smallest of the earlier ones that makes it fail; where none does
    alone, the first that fails when all of them run again. None where none does.

    Args:
        failed: on ranks on which the earlier ones had run before it.
    """
    nearest = earlier[-TRIED // 2 :]
    others = [*earlier[: TRIED - len(nearest)], *nearest]
    for before in sorted({case.canonical(): case for case in others}.values(), key=size_of):
        runner.renew(max(before.world_size, failed.case.world_size))
        runner.run(before)
        again = decided(lambda: runner.run(failed.case))
        if again.verdict is Verdict.FAIL:
            return _counterexample(again, [before])
    runner.renew(max(case.world_size for case in (*earlier, failed.case)))
    for at, case in enumerate(every := [*earlier, failed.case]):
        again = decided(lambda case=case: runner.run(case))  # type: ignore[misc]
        if at and again.verdict is Verdict.FAIL:
            return _counterexample(again, every[:at])
    return None


def _counterexample(found: CaseResult, before: Sequence[Case]) -> Counterexample:
    subject, last = next(map(subject_of, found.mismatches)), before[-1].describe()
    cause = WrongAfter(subject, last, len(before) - 1)
    return Counterexample(
        id=found.case.id(last),
        case=found.case,
        mismatches=found.mismatches,
        diagnosis=Diagnosis(Code.STALE_BUFFER, cause, sentence(cause)),
        engine=found.engine,
    )
