"""An optimizer's state that data-parallel ranks share among them, as ZeRO-1 does."""

from __future__ import annotations

from collections.abc import Sequence

from tpcheck import placement
from tpcheck.evidence import Absent
from tpcheck.oracle.pose import Posed
from tpcheck.protocol.messages import RankReport
from tpcheck.protocol.optimizing import parameter_of
from tpcheck.tensors.digest import NOTHING
from tpcheck.tensors.names import InPass
from tpcheck.vocabulary import Kind

#: Ranks and the parameters of which they keep no state, in a step.
LeftToReplicas = set[tuple[int, str, int]]


def left_to_replicas(posed: Posed, reports: Sequence[RankReport]) -> LeftToReplicas:
    """What ranks keep nothing of while another rank with the same part of the parameter does: that
    one takes the step for them, and parameters show whether it has (Rajbhandari et al., "ZeRO:
    memory optimizations toward training trillion parameter models", 2020)."""
    absent, kept = _by_parameter(posed, reports)
    if not absent:
        return absent
    over = list(posed.case.mesh) if posed.shared else None
    found: LeftToReplicas = set()
    for rank, name, step in absent - kept:
        entry, shape = posed.params[name], tuple(posed.problems[0].params[name].shape)
        for ranks in placement.replicas(entry, shape, case=posed.case, over=over):
            if rank in ranks and any((other, name, step) in kept - absent for other in ranks):
                found.add((rank, name, step))
    return found


def of_state(posed: Posed, kind: Kind, tensor: str, rank: int) -> tuple[int, str, int] | None:
    """The parameter, and the step, that a rank's tensor is state of; None where it is none."""
    if kind is not Kind.OPTIMIZER_STATE:
        return None
    name = InPass.parse(tensor)
    of = parameter_of(name.base, posed.params)
    return None if of is None else (rank, of, name.at.step)


def _by_parameter(
    posed: Posed, reports: Sequence[RankReport]
) -> tuple[LeftToReplicas, LeftToReplicas]:
    """What lacks some of its state, and what has some."""
    absent: LeftToReplicas = set()
    kept: LeftToReplicas = set()
    for m in (m for report in reports for m in report.mismatches):
        what = of_state(posed, m.kind, m.tensor, m.rank) if isinstance(m.detail, Absent) else None
        if what is not None:
            absent.add(what)
    for report in reports if absent else ():
        for kind, tensor in report.digests:
            what = of_state(posed, Kind(kind), tensor, report.rank)
            if what is not None and report.digests[kind, tensor] != NOTHING:
                kept.add(what)
    return absent, kept
