"""Whether the ranks' random masks are one where they must be, and several where they must not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, islice

from tpcheck import engines, placement
from tpcheck.case import Case
from tpcheck.check import Check
from tpcheck.errors import InvalidArgument
from tpcheck.evidence.masks import MaskRepeated, MasksAgree, MasksDiffer
from tpcheck.oracle.pose import Posed
from tpcheck.placement import Entry, Shard, by_axis
from tpcheck.protocol.messages import DrawnMask, RankReport
from tpcheck.tensors.masks import TELLING
from tpcheck.tensors.names import InPass
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Kind

#: Rank → the masks that it drew, by name
Drawn = Mapping[int, Mapping[str, DrawnMask]]


def require_masks(check: Check, kind: engines.Kind, posed: Posed) -> None:
    """That a reference's random masks can be compared with those of the candidate.

    Raises:
        InvalidArgument: the check, or the engine, can't.
    """
    if not any(problem.masks for problem in posed.problems):
        return
    others = [axis for axis, degree in posed.case.mesh.items() if degree > 1]
    others = [axis for axis in others if axis not in ("dp", "tp")]
    cannot = (
        (bool(others), f"ranks along {' and '.join(others)} can't be compared by"),
        (check.kernel is not None, "a kernel check can't compare"),
        (check.schedule is not None, "a check with schedule= can't compare"),
        (check.resumes, "a check that resumes training can't compare"),
        (not kind.processes, f"the {kind.name} engine can't compare"),
    )
    for so, what in cannot:
        if so:
            raise InvalidArgument(
                f"the reference draws random masks, which {what}; set its rate of "
                "dropout to 0, or call its eval()"
            )


def uncoordinated(posed: Posed, reports: Sequence[RankReport]) -> list[Mismatch]:
    """Of each mask: ranks with the same elements that drew different ones, and ranks with different
    elements that drew the same."""
    drawn, names = _alike_in(reports)
    found = [_mismatch(name, d) for name in names for d in _differ(posed, name, drawn)]
    for of_one in _of_lines(names, reports):
        alone = [[name] for name in of_one]
        several = [*alone, of_one] if len(of_one) > 1 else alone
        told = (_mismatch(of[0], d) for of in several for d in _agree(posed.case, of, drawn))
        found += islice(told, 1)
    return found + list(islice(_repeated(posed.case, drawn), 1))


def telling(case: Case, reports: Sequence[RankReport]) -> dict[str, float]:
    """Line that draws masks of which ranks have different parts → the bits of one rank's part by
    which that may be seen, at most."""
    drawn, names = _alike_in(reports)
    found: dict[str, float] = {}
    for of_one in _of_lines(names, reports):
        line = reports[0].drawn[of_one[0]].where
        for _, bits in _parts(case, of_one, drawn):
            found[line] = max(found.get(line, 0.0), bits)
    return found


def _alike_in(reports: Sequence[RankReport]) -> tuple[Drawn, list[str]]:
    """All masks, and the names of those that can be compared."""
    drawn = {report.rank: report.drawn for report in reports}
    return drawn, [name for name in reports[0].drawn if _alike(name, drawn)] if reports else []


def _of_lines(names: Sequence[str], reports: Sequence[RankReport]) -> Sequence[list[str]]:
    """The masks that one line of one module draws, of each."""
    of_line: dict[tuple[str, str], list[str]] = {}
    for name in names:
        first = reports[0].drawn[name]
        of_line.setdefault((first.where, first.module), []).append(name)
    return list(of_line.values())


def _alike(name: str, drawn: Drawn) -> bool:
    """Whether all ranks drew the mask, and split it alike; what they did not is said already."""
    own = [masks.get(name) for masks in drawn.values()]
    return all(one is not None and own[0] is not None and one.entry == own[0].entry for one in own)


def _mismatch(name: str, detail: MasksDiffer | MasksAgree) -> Mismatch:
    return Mismatch(name, Kind.MASK, detail.ranks[0], detail=detail)


def _differ(posed: Posed, name: str, drawn: Drawn) -> Iterator[MasksDiffer]:
    """The first ranks with the same elements that drew different masks."""
    parsed = InPass.parse(name)
    number = int(parsed.base.removeprefix("mask"))
    shape = tuple(posed.problems[0].masks[parsed.at.suffix][number].true.shape)
    entry = next(iter(drawn.values()))[name].entry
    for ranks in placement.replicas(entry, shape, case=posed.case):
        odd = tuple(r for r in ranks if drawn[r][name].bits != drawn[ranks[0]][name].bits)
        if odd:
            at = drawn[odd[0]][name]
            yield MasksDiffer(tuple(ranks), odd, at.where, at.module)
            return


def _agree(case: Case, names: Sequence[str], drawn: Drawn) -> Iterator[MasksAgree]:
    """The first two ranks that have different parts, and drew the same masks for them: in so many
    of those that one line of one module draws that it is no chance."""
    for (one, other, apart), bits in _parts(case, names, drawn):
        same = all(drawn[one][n].bits == drawn[other][n].bits for n in apart)
        if same and bits >= TELLING:
            at = drawn[one][apart[0]]
            yield MasksAgree((one, other), _split(case, at.entry), at.where, at.module)
            return


def _parts(
    case: Case, names: Sequence[str], drawn: Drawn
) -> Iterator[tuple[tuple[int, int, list[str]], float]]:
    """Two ranks that have different parts of some of these masks, these, and how many bits of the
    first rank's they are."""
    for one, other in combinations(drawn, 2):
        apart = [n for n in names if _apart(case, drawn[one][n].entry, one, other)]
        if apart:
            yield (one, other, apart), sum(drawn[one][n].tells for n in apart)


def _repeated(case: Case, drawn: Drawn) -> Iterator[Mismatch]:
    """Masks that one rank drew and another one before or after it, for another tensor. Those of one
    rank it says itself."""
    seen: dict[tuple[int, str], tuple[int, str]] = {}  # data, bits → the first rank, and its mask
    for name in next(iter(drawn.values()), {}):
        for rank, masks in drawn.items():
            mask = masks.get(name)
            if mask is None or mask.tells < TELLING:
                continue
            own = case.dp_coordinate(rank), mask.bits
            other, earlier = seen.setdefault(own, (rank, name))
            if other != rank and earlier != name:
                detail = MaskRepeated(earlier, mask.where, mask.module)
                yield Mismatch(name, Kind.MASK, rank, detail=detail)


def _split(case: Case, entry: Entry) -> tuple[int, ...]:
    """The dims along which a mask is split between ranks."""
    cuts = by_axis(entry).items()
    return tuple(p.dim for a, p in cuts if isinstance(p, Shard) and case.mesh.get(a, 1) > 1)


def _apart(case: Case, entry: Entry, one: int, other: int) -> bool:
    """Whether two ranks have different parts of the same data."""
    mine, theirs = case.coordinates(one), case.coordinates(other)
    cut = [axis for axis, p in by_axis(entry).items() if isinstance(p, Shard)]
    data = mine.get("dp", 0) == theirs.get("dp", 0)
    return data and any(mine.get(axis, 0) != theirs.get(axis, 0) for axis in cut)
