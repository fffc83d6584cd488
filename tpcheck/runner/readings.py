"""Other ways to read the ranks' random masks: where sizes are equal the shape of a mask does not
say in which order its dims are, and a right candidate is wrong under all ways but one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice, product

from tpcheck.protocol.messages import RankReport
from tpcheck.tensors.readings import Reading
from tpcheck.verdict import CaseResult, Verdict

#: Ways that are tried. Fewer, and a right candidate with two masks of four ways each is called
#: wrong; more, and every case of a wrong one costs more.
MOST = 16


def untried(reports: Sequence[RankReport], steps: int | None = None) -> list[Mapping[str, Reading]]:
    """What the ranks did not try: for each line that draws masks one way that fits on all ranks.

    Args:
        steps: how many show the failure, of training. What gives other masks before the last of
            them is refuted: all of that is right under those in use.
    """
    sites = dict.fromkeys(site for report in reports for site in report.readings)
    ways: dict[str, list[Reading]] = {}
    alike = True
    for site in sites:
        own = [report.readings.get(site, []) for report in reports]
        fitting = [one for one in own[0] if all(one in others for others in own)]
        ways[site] = [one for one in fitting if _may_be(reports, site, one, steps or 1)]
        alike = alike and all(ways[site][:1] == others[:1] for others in own)
    every = (dict(zip(ways, chosen, strict=True)) for chosen in product(*ways.values()))
    return list(islice(every, 1 if alike else 0, MOST)) if ways else []


def _may_be(reports: Sequence[RankReport], site: str, one: Reading, steps: int) -> bool:
    apart = (report.apart.get(site, {}).get(one, steps) for report in reports)
    return all(step >= steps - 1 for step in apart)


def may_be_misread(result: CaseResult) -> bool:
    """Whether a failure is one of values alone, which come out otherwise under other masks."""
    told = (m.kind.is_value for m in result.mismatches)
    return result.verdict is Verdict.FAIL and all(told)
