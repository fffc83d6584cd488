"""One case on one rank, whatever it comes to: what the candidate raises is evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from gc import collect
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from tpcheck import order
from tpcheck.cleanup import end_case
from tpcheck.comms import frames
from tpcheck.comms.trace import Recorder
from tpcheck.errors import CollectiveMismatch, TpcheckError
from tpcheck.evidence import Misheld, Raised, Scene, Stray
from tpcheck.kernels import sanitizer
from tpcheck.protocol.messages import RankReport, Work
from tpcheck.ranks import compiled
from tpcheck.ranks.kernel import stopped_by, unmodelled_by
from tpcheck.ranks.run import RankRun
from tpcheck.tensors.strides import spanned
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Fault, Kind, Phase, Uncompiled


def run_case(
    work: Work, parts: Mapping[str, Any], mesh: DeviceMesh, recorder: Recorder
) -> RankReport | Mismatch:
    """Runs one case; what the candidate raises becomes a `Mismatch` with its own traceback, and
    with what is wrong with how it held its parameters."""
    run: RankRun | None = None
    sanitizer.begin()
    try:
        run = RankRun(work, parts, mesh, recorder)
        return _held(run.run(), sanitizer.stray())
    except CollectiveMismatch as error:
        last = recorder.events[-1]
        scene = Scene(stack=frames.stack(error), module=last.module, phase=last.phase)
        refused = replace(error.refused, scene=scene)
        return Mismatch("collective", Kind.COLLECTIVE, recorder.rank, detail=refused)
    except Exception as error:
        if missing := unmodelled_by(error):
            return RankReport(recorder.rank, unmodelled=missing)
        if compiled.met_limit(error):
            return RankReport(recorder.rank, uncompiled=Uncompiled.LIMIT)
        failed = raised(error, recorder, frames.stack(error))
        if run is not None and isinstance(failed.detail, Raised) and _is_starved(error, run):
            failed = replace(failed, detail=replace(failed.detail, starved=True))
        is_ours = isinstance(error, TpcheckError)  # of what the check gave, whatever was held
        return failed if run is None or is_ours else _with_what_it_held(failed, run)
    finally:
        end_case()
        if recorder.dispatch or work.case.world_size == 1:  # threads share a compiler
            compiled.forget()
        # what the candidate leaves in circles goes in its own case, with whatever it then does; by
        # this module's own name: it may have replaced `gc.collect`
        collect()


def _held(report: RankReport, stray: Stray | None) -> RankReport:
    """With what was seen of its kernels, which may have gone on."""
    if stray is not None:
        report.mismatches.insert(0, sanitizer.told(stray, report.rank, Scene()))
    return report


def _is_starved(error: Exception, run: RankRun) -> bool:
    """Whether it may be for want of memory that a function raised which fills what lies between
    rows that are far apart: there is not as much."""
    problem = run.problem
    spans = spanned(run.case, *problem.inputs, *problem.cotangents)
    if not spans or not isinstance(error, (RuntimeError, MemoryError)):
        return False
    try:
        torch.empty(spans, dtype=torch.uint8)
    except RuntimeError:
        return True
    return False


def raised(error: BaseException, recorder: Recorder, stack: str) -> Mismatch:
    """What a candidate raised on this rank, as evidence."""
    at = Scene(stack=stack, phase=recorder.phase)
    if (stopped := stopped_by(error, recorder.rank, at)) is not None:
        return stopped
    if isinstance(error, RuntimeError) and (found := sanitizer.stray(wait=sanitizer.SOON)):
        return sanitizer.told(found, recorder.rank, at)
    detail = Raised(
        type=frames.kind_of(error),
        text=frames.line_of(error),
        scene=at,
        communicating=error is recorder.broken or isinstance(error, dist.DistError),
        row=order.refused(error) if recorder.phase is Phase.BUILD else None,
    )
    return Mismatch("exception", Kind.EXCEPTION, recorder.rank, detail=detail)


def _with_what_it_held(failed: Mismatch, run: RankRun) -> Mismatch:
    """The same with the parameters that were not as laid out when the candidate ran: a whole weight
    does not fit a part of an input. What they keep alive has nobody raise, and what a loader of its
    own raises comes before they are judged."""
    detail, phase = failed.detail, run.recorder.phase
    if not isinstance(detail, Raised) or phase in (Phase.BUILD, Phase.LOAD, Phase.SAVE):
        return failed
    held = ((m.tensor, m.detail) for m in run.report.mismatches)
    at_fault = tuple((n, own) for n, own in held if isinstance(own, Misheld) and _explains(own))
    return failed.seen_at(replace(failed.scene, misheld=at_fault)) if at_fault else failed


def _explains(detail: Misheld) -> bool:
    return detail.fault not in (Fault.STORAGE, Fault.READ)
