"""`python -m tests.catalogue.rare.rates`: in how many cases plain random search meets each fault.

So many cases are drawn as they come. Of those that have what the fault needs at least, each is run,
and counts where it fails. The median number of cases until the first follows: ln 2 over the rate.
What `masked_softmax_first_block` needs is in the numbers of a case, and not seen before it runs.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator

from tests.catalogue.rare.faults import SELDOM
from tests.catalogue.rare.search import AsTheyCome
from tpcheck.case import Case
from tpcheck.check import Check
from tpcheck.engines.engine import Engine
from tpcheck.runner.runner import Runner
from tpcheck.search.of_spec import cases_of
from tpcheck.search.options import Options
from tpcheck.space import Space
from tpcheck.tensors.strides import format_of
from tpcheck.verdict import Verdict

#: Cases drawn at a time, as in a turn of a hunt.
AT_ONCE = 30


def _conv(case: Case) -> bool:
    paired = case.dtype == "bfloat16" and case["dilation"] % 2 == 0
    return paired and (case["length"] - 1) in [n * case["dilation"] for n in (1, 2, 3)]


def _pitch(case: Case) -> bool:
    return case["width"] == 4 and {format_of(case, n) for n in ("gate", "up")} == {
        "sliced",
        "padded",
    }


#: What a fault needs at least, of those for which that can be seen of a case.
NEEDS: dict[str, Callable[[Case], bool]] = {
    "rms_norm_weight_alone": lambda c: c.gradients == "some" and c["width"] % 64 == 1,
    "swiglu_row_pitch": _pitch,
    "cross_entropy_padded_id": lambda c: c["vocab"] % 128 == 0 and c["tokens"] > 0,
    "causal_conv_pairs": _conv,
    "centre_fixed_point": lambda c: c.dtype == "bfloat16" and c.magnitude > 0 and c["width"] > 128,
    "layer_norm_one_row": lambda c: c["rows"] == 1 and 96 < c["width"] <= 128,
    "causal_softmax_last_tile": lambda c: (
        c["causal"] and c.dtype == "bfloat16" and (c["keys"] - c["queries"]) % 64 == 1
    ),
    "bias_silu_reciprocal": lambda c: c.dtype == "bfloat16" and c["rows"] == 41,
    "similarity_same_tensor": lambda c: c.memory == "aliased" and c["rows"] == c["others"],
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="rates", description=__doc__)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=f"of {', '.join(NEEDS)}")
    parser.add_argument("--cases", type=int, default=60000, metavar="N")
    given = parser.parse_args()
    if unknown := set(given.faults) - NEEDS.keys():
        raise SystemExit(f"rates: {', '.join(sorted(unknown))}: not one of {', '.join(NEEDS)}")
    for name in given.faults or NEEDS:
        print(json.dumps(_rate(name, given.cases)), flush=True)
    return 0


def _rate(name: str, count: int) -> dict[str, object]:
    check, may = SELDOM[name], [case for case in _drawn(SELDOM[name], count) if NEEDS[name](case)]
    with Engine("gloo", 1, time_limit=30.0, preload={check.candidate.__module__}) as engine:
        engine.start()
        runner = Runner(check, engine)
        shown = sum(runner.run(case).verdict is Verdict.FAIL for case in may)
    median = round(math.log(2) * count / shown) if shown else None
    return {"fault": name, "cases": count, "ran": len(may), "failed": shown, "median": median}


def _drawn(check: Check, count: int) -> Iterator[Case]:
    """Different cases, as plain random search draws them."""
    strategy = cases_of(check.spec, Space((1,), check.spec.asked(Options().dtypes), 1))
    past: set[int] = set()
    turn = 0
    while len(past) < count:
        stream = AsTheyCome(strategy, f"rates {turn}", [], lambda case: hash(case) in past)
        turn += 1
        for case in stream.take(min(AT_ONCE, count - len(past))):
            past.add(hash(case))
            yield case


if __name__ == "__main__":
    raise SystemExit(main())
