"""Why nothing was decided: the sentences behind UNKNOWN."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tpcheck.case import Case
from tpcheck.errors import counted
from tpcheck.evidence.judged import Tensors
from tpcheck.known import KnownFinding
from tpcheck.report import judged
from tpcheck.report.text import describe
from tpcheck.verdict import CaseResult, Mismatch
from tpcheck.vocabulary import Uncompiled

CANARY_SURVIVED = "the canary (a row linear without its all-reduce) was not found"
#: Of one that ran several checks.
WORKER_LOST = "the process that ran it is gone: ended by native code, or killed for want of memory"
NONE_DRAWN = "only saved cases have run, and none was drawn"
NO_TIME = "the time was up before a case could run"
JOB_LOST = f"{WORKER_LOST}; --jobs 1 needs less"


def nothing_judged(tensors: Tensors) -> str:
    """Of a case, or of all of a check."""
    if not tensors:
        return "nothing was compared"
    return f"nothing was judged: {judged.each(tensors)}"


def never_judged(tensors: Tensors) -> str:
    """Tensors of a check of which no case judged anything."""
    return f"judged in no case: {judged.each(tensors)}"


def all_empty(cases: int) -> str:
    """No tensor of a check has an element in any case."""
    return (
        f"nothing was compared: no tensor had an element, in {counted(cases, 'case')}; draw other "
        "sizes"
    )


def masks_too_small(lines: Mapping[str, float], telling: float) -> str:
    """Of a check whose ranks draw masks of different parts, by the line that does."""
    each = ", ".join(f"{line} ({bits:.0f} bits)" for line, bits in lines.items())
    return (
        f"masks that ranks have different parts of were too small to tell whether the ranks draw "
        f"different ones, in every case: {each}; one case takes {telling:.0f} bits: draw larger "
        "sizes"
    )


def canary_refused(error: Exception) -> str:
    return f"the canary could not run: {error}"


def twin_refused(mismatch: Mismatch) -> str:
    """The canary's correct twin failed."""
    return f"a correct row linear was called wrong: {describe(mismatch)}"


def trace_is_wrong(operations: Sequence[str]) -> str:
    return f"the trace of one all-reduce shows {list(operations)}"


def late_once(case: Case) -> str:
    """A case met the time limit, and passed when it ran again."""
    return (
        f"{case.describe()} ran into the time limit once, and passed on fresh ranks "
        "(a busy machine, or a race)"
    )


def slow_build(seconds: float) -> str:
    """A candidate's `build` met its limit on some rank."""
    return (
        f"build took longer than {seconds:g} s; name what it imports in its spec's preload=, so "
        "that ranks have it before the clock runs, or give a larger --time-limit"
    )


def not_modelled(what: str) -> str:
    """A kernel does something that Triton's interpreter does not do as a GPU does."""
    return f"not checked: {what}; run it on a GPU"


def not_compiled(why: Uncompiled) -> str:
    """A function that is handed to `torch.compile` ran as it is written."""
    return {
        Uncompiled.NOTHING: "not checked: torch.compile made no graph of it, and it ran eagerly",
        Uncompiled.LIMIT: "not checked: in one case it was compiled as often as "
        "torch._dynamo.config.recompile_limit allows, and would have run eagerly from then on",
    }[why]


def not_confirmed(found: CaseResult, *, real: str) -> str:
    """An engine that simulates ranks fails a case, and real ranks pass it."""
    seen = describe(found.mismatches[0]).splitlines()[0]
    return f"{found.engine} fails and {real} passes: {found.case.describe()}: {seen}"


def never_ran(degrees: Iterable[int]) -> str:
    return f"the time was up before tp={','.join(map(str, degrees))} could run"


def no_case(degrees: Iterable[int]) -> str:
    """The spec has cases at other degrees alone."""
    which = ",".join(map(str, degrees))
    return f"its spec has no case at tp={which}: the examples meant for that went to other degrees"


def wrong_after_others(case: Case, after: int) -> str:
    """A kernel was wrong once, and neither any of the cases before nor all of them make it so."""
    return (
        f"the case {case.describe()} failed after {counted(after, 'other')} in the same process, "
        "and passes alone, after each of them and after all: it is wrong now and then"
    )


def saved_before() -> str:
    """Of a counterexample that was not drawn."""
    return (
        "its counterexample was saved by an earlier run; saved cases run first, whatever degrees "
        "and dtypes are asked for"
    )


def listed_not_run(left: Sequence[Case], of: int, *, few: bool) -> str:
    """Cases of a list that were not run: there were too few examples for them, or no time."""
    what = f"give --examples {of}" if few else "the time was up"
    some = f"{len(left)} of {counted(of, 'listed case')}"
    return f"{some} did not run ({left[0].describe()} …): {what}"


def not_apart(case: Case) -> str:
    """A function fills what lies between rows that are gigabytes apart."""
    return (
        f"rows that are gigabytes apart were not all tried: in {case.describe()} the function, or "
        "its backward, fills what lies between them, as that of torch.as_strided does, and takes "
        'more time or memory than there is; memory= without "giant" and "mixed" says that it is '
        "not meant for them"
    )


def list_not_whole(of: int) -> str:
    """A run of `fuzz` ended before it had no case left of a list."""
    return f"not all of its {counted(of, 'listed case')} ran: give it more time"


def open_no_more(case: Case, why: str) -> str:
    """What could not be decided is not a case of its check any more."""
    return f"the case {case.describe()} could not be decided, and can't be any more: {why}"


def does_not_show(finding: KnownFinding, case: Case) -> str:
    """A known finding is declared for a release that does not have it."""
    return (
        f"the known finding {finding.page} is declared for {finding.package} "
        f"{finding.releases} and does not show with {finding.package} {finding.installed()}: "
        f"{case.describe()} passes; correct its declaration or take it out"
    )


def interrupted(finished: int, checks: int | None) -> str:
    if checks is None:
        return "interrupted before the checks were collected"
    return f"interrupted after {finished} of {counted(checks, 'check')}"


def orphan(identity: str, address: tuple[str, str], folder: Path) -> str:
    """A saved case whose check is no longer there."""
    file, variable = address
    return (
        f"the saved case {identity} belongs to {file}::{variable}, which is gone: replay it with "
        f"--check FILE::NAME, or remove {folder / identity}.json"
    )


def in_a_list(file: str, variable: str, count: int) -> str:
    """Of checks that a file has in a list, say."""
    return f"{file}: {variable} holds {counted(count, 'check')} that no variable has by itself"


def passed_over(file: str, variable: str, count: int) -> str:
    """The same of those that do not run beside others."""
    return f"note: {in_a_list(file, variable, count)}: not run"


def empty(path: str) -> str:
    """A file, or a folder, that was named and has nothing to run."""
    return f"note: {path} has no check"


def engine_gone(engine: str, error: BaseException) -> str:
    """The ranks can't be started again."""
    return f"the engine {engine} can't go on: {' '.join(str(error).split())}"


#: The room of tpcheck, or the module, from which something of the user's was called → what that is.
_CALLED = {
    "strategies": "the strategy of its cases",
    "search.of_spec": "the strategy of its cases",
    "search.drawing": "the strategy of its cases",
    "known": "`when` of one of its known findings",
    "spec": "its spec",
    **dict.fromkeys(("oracle", "bounds", "tensors", "protocol"), "the reference"),
}


def raised(said: str, through: Sequence[str]) -> str:
    """Something raised while a check ran, in the driver.

    Args:
        said: what it raised, and where (`comms.frames.in_a_line`).
        through: the modules of tpcheck that it left (`comms.frames.through`).
    """
    what = called(through)
    if what is None:
        last = through[-1] if through else "a place of its own"
        return f"tpcheck {said} (in {last}): please report it"
    return f"{what} {said}"


def called(through: Sequence[str]) -> str | None:
    """What of the user's was called where tpcheck was left; None where nothing was."""
    last = through[-1] if through else ""
    return _CALLED.get(last) or _CALLED.get(last.partition(".")[0])


def remedy(error: BaseException, through: Sequence[str]) -> str:
    """What to do where the reference's own forward or backward raised what a dtype may be the cause
    of, as torch's own errors are; else nothing."""
    if "oracle.passes" not in through or not isinstance(error, (RuntimeError, TypeError)):
        return ""
    return (
        "; a reference runs in float64, and in the dtype of each case: where it has no kernel for "
        "float64, give an implementation that has (transformers: "
        'experts_implementation="eager"); where for another, give --dtype'
    )


def turn_lost(count: int, *, aside: bool) -> str:
    """A worker of `fuzz` ended, or said nothing for long, in a turn of a check."""
    times = "once" if count == 1 else counted(count, "time")
    then = "; it is set aside" if aside else ""
    return f"{cases_lost()}, {times}{then}"


def cases_lost() -> str:
    """Why the cases of such a turn are not decided."""
    return "the process that drew its cases ended or hung"


def fuzz_interrupted(cases: int) -> str:
    return f"interrupted after {counted(cases, 'case')}; the same command goes on from there"


def not_explained(case: str | None, why: str | None) -> str:
    """A case failed when it was met, and the check could not be run again to explain it."""
    return f"{case} failed; run again: {why}"


def not_again(case: str | None) -> str:
    """A case failed when it was met, and nothing failed when the check ran again to explain it."""
    return f"{case} failed once; run again, neither it nor any other case did"
