"""What a candidate printed in the failing case, rank by rank."""

from __future__ import annotations

from collections.abc import Mapping

from tpcheck.errors import counted

#: Lines of a rank that are shown, the last ones: what stands before a failure says most of it.
LINES = 6


def lines(printed: Mapping[int, str], *, verbose: bool) -> list[str]:
    """`rank 0 printed:` and its last lines; ranks that printed the same are told together."""
    ranks_of: dict[str, list[int]] = {}
    for rank, text in sorted(printed.items()):
        ranks_of.setdefault(text.rstrip(), []).append(rank)
    found = []
    for text, ranks in ranks_of.items():
        own = text.splitlines()
        shown = own if verbose else own[-LINES:]
        more = f" ({counted(len(own) - len(shown), 'line')} before; -v shows all)"
        which = f"rank{'s' * (len(ranks) > 1)} {','.join(map(str, ranks))}"
        found.append(f"  {which} printed{more if len(shown) < len(own) else ''}:")
        found += [f"    {line}" for line in shown]
    return found
