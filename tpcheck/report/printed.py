"""What a candidate printed in the failing case, rank by rank."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tpcheck.errors import counted

#: Lines of a rank that are shown, the last ones: what stands before a failure says most of it.
LINES = 6

#: What is said of a rank that printed nothing else.
TORCHS = " what torch logs, no more"

#: A line that a private module of torch's logs: of an error that it then raises, as those that know
#: a DTensor's shape do. `[rank0]:E1128 09:27:07.707000 9791 torch/_subclasses/fake_tensor.py:3090]`
_TORCHS = re.compile(r"(\[rank\d+\]:)?E\d{4} [^\]]* torch/_[^\]]*\.py:\d+\]")


def lines(printed: Mapping[int, str], *, verbose: bool) -> list[str]:
    """`rank 0 printed:` and its last lines, without what torch logs; ranks that printed the same
    are told together."""
    ranks_of: dict[tuple[str, ...], list[int]] = {}
    count: dict[tuple[str, ...], int] = {}
    for rank, text in sorted(printed.items()):
        every = text.rstrip().splitlines()
        own = tuple(every if verbose else _own(every))
        ranks_of.setdefault(own, []).append(rank)
        count[own] = max(count.get(own, 0), len(every))
    found = []
    for own, ranks in ranks_of.items():
        shown = own if verbose else own[-LINES:]
        which = f"rank{'s' * (len(ranks) > 1)} {','.join(map(str, ranks))}"
        more = f" ({counted(count[own] - len(shown), 'more line')}; replay -v shows all)"
        what = f"{more if len(shown) < count[own] else ''}:" if shown else f"{TORCHS}{more}"
        found.append(f"  {which} printed{what}")
        found += [f"    {line}" for line in shown]
    return found


def _own(lines: list[str]) -> list[str]:
    """Those that torch has not logged; none where these are blank."""
    own = [line for line in lines if not _TORCHS.match(line)]
    return own if any(line.strip() for line in own) else []
