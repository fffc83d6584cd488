"""Examines a failing case: runs it again with every rank's tensors kept, says where it starts, and
names the cause. Nothing of this runs for a case that passes. The one place where sentences are
put to causes.
"""

from __future__ import annotations

import contextlib
import math
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tpcheck.case import Case
from tpcheck.causes.loaded import is_the_loaders
from tpcheck.causes.structure import DiagnosisFailed, NothingKnown
from tpcheck.causes.where import AtModule, FirstSeen, OnlyCompiled, Subject
from tpcheck.diagnosis import diagnose, pictures, runs
from tpcheck.diagnosis.facts import Dumps, Facts, Local, values
from tpcheck.diagnosis.hypotheses.coarse import rounded_on_the_way
from tpcheck.diagnosis.hypotheses.kernels import of_kernels
from tpcheck.diagnosis.hypotheses.reruns import changed
from tpcheck.diagnosis.localise import Borders, Place, locate, watched_pass
from tpcheck.diagnosis.outside import outside
from tpcheck.diagnosis.released import recognised
from tpcheck.diagnosis.sources import sources
from tpcheck.diagnosis.structure import by_structure
from tpcheck.errors import InvalidArgument, let_through
from tpcheck.event import averaging
from tpcheck.evidence.known import KnownAs
from tpcheck.evidence.pictures import LOADER, Boundaries, Pictures
from tpcheck.oracle.effort import CLOSER, CONFIRM
from tpcheck.oracle.pose import Posed
from tpcheck.report.diagnoses import sentence
from tpcheck.report.diagnoses.where import first_seen
from tpcheck.runner.runner import Runner
from tpcheck.spec import Spec
from tpcheck.tensors.boundaries import Border
from tpcheck.tensors.names import Pass
from tpcheck.verdict import CaseResult, Diagnosis, Mismatch, Verdict
from tpcheck.vocabulary import Code, Kind

#: Characters of an exception's text that are shown: a reference may print whole tensors.
SHOWN = 200


@dataclass(frozen=True)
class Examined:
    """What became of a failure: its cause, where it is seen first, and the evidence to show.

    Args:
        again: what the case came to when it was run again; None where it was not.
        pictures: what a page draws of it.
        known: the fault of a released package that it is, where that is recognised.
    """

    diagnosis: Diagnosis
    first_divergence: str | None
    mismatches: list[Mismatch]
    again: Verdict | None = None
    pictures: Pictures | None = None
    known: KnownAs | None = None


def examine_failure(runner: Runner, failed: CaseResult) -> Examined:
    """Runs a failing case once more, to say where it starts and why it fails. Whatever goes wrong
    with that: the verdict and its evidence stand."""
    try:
        return _examined(runner, failed)
    except InvalidArgument:  # the spec's author must fix it
        raise
    except BaseException as error:  # of tpcheck's, or of a reference in this case
        let_through(error)
        diagnosis = Diagnosis(Code.UNCLASSIFIED, _own_failure(error))
        return _told(diagnosis, diagnose.first_divergence(failed), failed.mismatches)


def _examined(runner: Runner, failed: CaseResult) -> Examined:
    """Of training only the steps up to the first wrong one run again: what comes after follows."""
    steps = failed.steps or math.inf
    until = [m for m in failed.mismatches if m.name.at.step < steps]
    if any(wrong.kind is Kind.DISCIPLINE for wrong in failed.causes):
        # what a call keeps by address is met by chance where the case has run before, and then
        # looks like a call that is not the same again
        runner.renew(failed.case.world_size)
    return _explained(runner.until(failed), replace(failed, mismatches=until))


def unexplained(failed: CaseResult) -> Examined:
    """A failure that can't be examined, since the spec's author must fix something first."""
    first = next(iter(failed.causes), None)
    subject = None if first is None else Subject(first.kind, first.tensor)
    diagnosis = Diagnosis(Code.UNCLASSIFIED, NothingKnown(subject))
    return _told(diagnosis, diagnose.first_divergence(failed), failed.mismatches)


def _told(
    diagnosis: Diagnosis,
    seen: FirstSeen | None,
    mismatches: list[Mismatch],
    again: Verdict | None = None,
) -> Examined:
    """With the sentences of the cause and of the place."""
    diagnosis = replace(diagnosis, message=sentence(diagnosis.cause))
    return Examined(diagnosis, first_seen(seen), mismatches, again)


def _own_failure(error: BaseException) -> DiagnosisFailed:
    at = traceback.extract_tb(error.__traceback__)[-1]
    text, file = str(error).strip()[:SHOWN], Path(at.filename).name
    return DiagnosisFailed(type(error).__name__, text, at.name, file)


def _explained(runner: Runner, failed: CaseResult) -> Examined:
    """The cause, where it is seen first, and the evidence that shows both best."""
    if failed.timed_out and (named := by_structure(failed)) is not None:
        # it has run twice, to its limit: that is enough
        return _told(named, None, failed.mismatches)
    # inside a module only the layout along tp is known: on other axes nothing can be compared
    at = watched_pass(failed) if set(failed.case.mesh) <= {"dp", "tp"} else None
    # hypotheses are tested within the bounds that decided: twice those of fewer runs may hold what
    # is wrong, too
    effort = CONFIRM if failed.confirmed else CLOSER
    posed = runner.first.watched(runner.check.spec, failed.case, effort, at)
    kept = None if at is None or not _has_modules(posed) else runs.kept(runner, posed, watch=at)
    # where boundaries are watched, nothing is compiled, and what has hooks may round otherwise
    if plain := kept is None or kept[0].compiles or _differs(failed, *kept):
        again, dumps = runs.kept(runner, posed, follow=at is None)
    else:
        again, dumps = kept
    same = _kinds(again) == _kinds(failed)
    # the same, and its collectives in backward carry their module
    shown = again if at is None and same else failed
    seen: FirstSeen | None = None
    place: Place | None = None
    inside: list[Local] = []
    crossed: Boundaries | None = None
    alone: CaseResult | None = None
    if at is not None and kept is not None:
        watched, (borders, alone) = kept[0], _crossed(runner, posed, failed, at, *kept)
        place = None if borders is None else locate(failed, borders)
        if borders is not None:
            with contextlib.suppress(Exception):
                crossed = pictures.boundaries(borders, place)
        if borders is not None and place is not None:
            inside = borders.telling(place, watched.trace)
        if same and watched.compiles and watched.verdict is Verdict.PASS:
            seen = _only_compiled(runner, posed, failed)
    if runner.check.kernel is not None and same and again.compiles:
        seen = _only_compiled(runner, posed, failed)
    own = runner.execute, partial(runs.kept, runner, again=False)
    asked = (runs.rerun_once(runner), _spec(runner, failed.case), inside, *own)
    ran: dict[str, Any] = {"resumes": runner.check.resumes, "alone": alone, "plain": plain}
    facts = Facts(posed, shown, again, dumps, *asked, **ran)
    diagnosis = _of_kernel(facts, runner) if runner.check.kernel else diagnose.diagnose(facts)
    seen = seen or outside(facts, place, diagnosis.cause, loads=runner.check.load is not None)
    seen = seen or _at_module(place) or diagnose.first_divergence(shown)
    told = _told(diagnosis, seen, shown.mismatches, again.verdict)
    with contextlib.suppress(Exception):
        told = replace(told, known=recognised(facts, diagnosis.cause))
    with contextlib.suppress(Exception):  # a picture less is no reason to lose the diagnosis
        entered = pictures.collectives(again)
        code = again.code | pictures.callables(runner.check)
        drawn = Pictures(pictures.maps(facts), crossed, entered, code)
        told = replace(told, pictures=drawn)
        lasts = (m.scene.peers or {"": m.scene.last or ()} for m in shown.mismatches)
        last = (text for each in lasts for texts in each.values() for text in texts or ())
        lines = [*(event.where for event in entered.events), *last]
        said = f"{told.diagnosis.message} {_at_fault(diagnosis, again, code)}"
        evidence = [m.detail for m in shown.causes]
        source = sources(runner.check, said, lines, code.values(), evidence)
        told = replace(told, pictures=replace(drawn, source=source))
    return told


def _of_kernel(facts: Facts, runner: Runner) -> Diagnosis:
    """What has to do with how it is called first, and last what a formula of its own may look
    like."""
    facts.fresh, rules = partial(runs.on_fresh_ranks, runner), runner.check.kernel
    found = of_kernels(facts) or diagnose.diagnose(facts)
    # of a small case nothing may be left of a gradient but what was rounded away
    if found.code not in (Code.UNCLASSIFIED, Code.GRADIENT_DROPPED) or rules is None:
        return found
    return rounded_on_the_way(facts, rules.free) or found


def _at_fault(diagnosis: Diagnosis, again: CaseResult, code: Mapping[str, str]) -> str:
    """A line that the diagnosis means and does not name: that of a loader, or of a mean."""
    if is_the_loaders(diagnosis.cause):
        return code.get(LOADER, "")
    return averaging(again.trace) if diagnosis.code is Code.AVERAGED_NOT_SUMMED else ""


def _spec(runner: Runner, case: Case) -> Spec:
    """The check's spec. A cause may be looked for in its budget, whether audited or not."""
    spec = runner.check.spec
    return replace(spec, budget=None) if runner.asked.budget(case) is None else spec


def _crossed(
    runner: Runner, posed: Posed, failed: CaseResult, at: Pass, watched: CaseResult, dumps: Dumps
) -> tuple[Borders | None, CaseResult | None]:
    """The boundaries that were watched (None where the case failed otherwise then), and what it
    comes to on one rank, where that was asked."""
    first = values(failed)[0]
    if not any(m.kind is first.kind for m in watched.mismatches):
        return None, None
    d = failed.case.dp_coordinate(first.rank)
    alone, comparable = _on_one_rank(runner, posed, at)
    return Borders(posed, dumps, d, comparable), alone


def _on_one_rank(
    runner: Runner, posed: Posed, at: Pass
) -> tuple[CaseResult | None, set[Border] | None]:
    """What a candidate that shards nothing comes to, and the boundaries at which it holds what the
    reference holds; None (all of them) where it can't be asked, or is wrong itself. The numbers do
    not depend on the mesh."""
    case = replace(posed.case, mesh={**posed.case.mesh, "tp": 1})
    requires = runner.check.spec.requires
    if posed.case.tp == 1 or (requires and requires(case)):
        return None, None
    alone = replace(posed, case=case)
    result, dumps = runs.kept(runner, alone, watch=at)
    return result, None if result.mismatches else Borders(alone, dumps).agreeing()


def _only_compiled(runner: Runner, posed: Posed, failed: CaseResult) -> OnlyCompiled | None:
    """Said of a case that failed twice, and passes where nothing but the compiler is off."""
    if runner.execute(posed, eager=True).verdict is not Verdict.PASS:
        return None
    seen = diagnose.first_divergence(failed)
    return OnlyCompiled(seen) if seen else None


def _differs(failed: CaseResult, watched: CaseResult, dumps: Dumps) -> bool:
    """Whether the case came to something else, by more than rounding, where its boundaries were
    watched."""
    return _kinds(watched) != _kinds(failed) or changed(failed, dumps, rounds=True) is not None


def _kinds(result: CaseResult) -> set[Kind]:
    return {m.kind for m in result.causes}


def _has_modules(posed: Posed) -> bool:
    """Whether the reference has modules inside, whose boundaries say where it starts."""
    return any(Border.of(target.name).module for target in posed.problems[0].borders)


def _at_module(place: Place | None) -> AtModule | None:
    """The place, where it says more than that it is in the outermost module."""
    if place is None or not (place.module or place.after):
        return None
    return AtModule(place.module, place.phase, place.after)
