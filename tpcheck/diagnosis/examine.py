"""Examines a failing case: runs it again with every rank's tensors kept, says where it starts, and
names the cause. Nothing of this runs for a case that passes."""

from __future__ import annotations

import contextlib
import tempfile
import traceback
from dataclasses import dataclass, replace
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

from tpcheck.case import Case
from tpcheck.diagnosis import diagnose
from tpcheck.diagnosis.evidence import ORDER, Facts, order_of
from tpcheck.diagnosis.localise import Borders, Place, locate, watched_pass
from tpcheck.errors import InvalidArgument
from tpcheck.oracle.pose import STUDY, Posed, pose
from tpcheck.runner.runner import Runner
from tpcheck.verdict import CaseResult, Diagnosis, Mismatch, Verdict

Kept = dict[int, dict[str, Tensor]]  # rank → name → tensor


@dataclass(frozen=True)
class Examined:
    """What became of a failure: its cause, where it is seen first, and the evidence to show."""

    diagnosis: Diagnosis
    first_divergence: str | None
    mismatches: list[Mismatch]


def examine_failure(runner: Runner, found: CaseResult) -> Examined:
    """Runs a failing case once more, to say where it starts and why it fails. Whatever goes wrong
    with that: the verdict and its evidence stand."""
    try:
        return _examined(runner, found)
    except InvalidArgument:  # the spec's author's to mend
        raise
    except Exception as error:  # a fault of tpcheck's, or of a reference under altered numbers
        at = traceback.extract_tb(error.__traceback__)[-1]
        message = (
            f"the diagnosis itself failed ({type(error).__name__} in {at.name} of "
            f"{Path(at.filename).name}: {str(error).strip()[:200]!r}): please report it"
        )
        diagnosis = Diagnosis("unclassified", message, {"failed": True})
        return Examined(diagnosis, diagnose.first_divergence(found), found.mismatches)


def _examined(runner: Runner, found: CaseResult) -> Examined:
    # inside a module only the layout along tp is known: on other axes borders can't be compared
    at = watched_pass(found) if set(found.case.mesh) <= {"dp", "tp"} else None
    posed = pose(runner.check.spec, found.case, STUDY, watch=at)
    again, dumps = _kept(runner, posed, follow=at is None)
    if at is None and _kinds(again) == _kinds(found):
        found = again  # the same, and its collectives in backward carry their module
    reruns: dict[str, CaseResult | None] = {}

    def rerun(case: Case) -> CaseResult | None:
        if case.canonical() not in reruns:
            reruns[case.canonical()] = None
            with contextlib.suppress(InvalidArgument):
                reruns[case.canonical()] = runner.run(case)
        return reruns[case.canonical()]

    place = inside = where = None
    if at is not None and any(t.name.split("|")[1] for t in posed.problems[0].borders):
        watched, borders = _watched(runner, posed, found, at)
        place = locate(found, borders) if borders else None
        if borders and place and place.border:
            inside = borders.local(place.border)
        if (
            watched.uncompiled
            and watched.verdict is Verdict.PASS
            and _kinds(again) == _kinds(found)
        ):
            where = _only_compiled(runner, posed, found)
    spec = runner.check.spec
    if runner.budget(found.case) is None:  # a cause may be looked for in it, whether audited or not
        spec = replace(spec, budget=None)
    facts = Facts(posed, found, again, dumps, rerun, spec, place, inside, runner.execute)
    where = where or _where(place) or diagnose.first_divergence(found)
    return Examined(diagnose.diagnose(facts), where, found.mismatches)


def _kinds(result: CaseResult) -> set[str]:
    return {m.kind for m in result.mismatches if not m.detail.get("consequence")}


def _watched(
    runner: Runner, posed: Posed, found: CaseResult, at: int | str
) -> tuple[CaseResult, Borders | None]:
    """The failing case with its borders watched, and these; None where it fails otherwise then."""
    first = min((m for m in found.mismatches if m.kind in ORDER), key=order_of)
    result, dumps = _kept(runner, posed, watch=at)
    if not any(m.kind == first.kind for m in result.mismatches):
        return result, None
    d = found.case.coordinates(first.rank).get("dp", 0)
    return result, Borders(posed, dumps, d, _comparable(runner, posed, at))


def _only_compiled(runner: Runner, posed: Posed, found: CaseResult) -> str | None:
    """Said of a case that failed twice, and passes where nothing but the compiler is off."""
    if runner.execute(posed, eager=True).verdict is not Verdict.PASS:
        return None
    return f"{diagnose.first_divergence(found)}, only where torch.compile is on"


def _comparable(runner: Runner, posed: Posed, at: int | str) -> set[str] | None:
    """The borders at which a candidate that shards nothing holds what the reference holds; None
    (all of them) where it can't be asked, or is wrong itself. The numbers do not depend on the
    mesh."""
    case = replace(posed.case, mesh={**posed.case.mesh, "tp": 1})
    requires = runner.check.spec.requires
    if posed.case.tp == 1 or (requires and requires(case)):
        return None
    alone = replace(posed, case=case)
    result, dumps = _kept(runner, alone, watch=at)
    return None if result.mismatches else Borders(alone, dumps).agreeing()


def _kept(
    runner: Runner, posed: Posed, *, watch: int | str | None = None, follow: bool = False
) -> tuple[CaseResult, Kept]:
    """The result of a case, and every rank's tensors."""
    with tempfile.TemporaryDirectory(prefix="tpcheck-") as folder:
        result = runner.execute(posed, dump=Path(folder), watch=watch, follow=follow)
        files = Path(folder).glob("rank*.safetensors")
        return result, {int(p.stem.removeprefix("rank")): load_file(p) for p in files}


def _where(place: Place | None) -> str | None:
    if place is None or not (place.module or place.after):
        return None
    after = f", where {place.after} leaves terms of a sum" if place.after else ""
    name = place.module or "the outermost module"
    return f"{name} ({place.phase}{after}); everything upstream agrees"
