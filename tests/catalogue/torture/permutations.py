"""Twenty checks, eight of which leave state behind, in random orders: the verdicts are the same."""

from __future__ import annotations

import random
import time

from tests.candidates import OneRankIsKilled, OneRankRaises, check
from tests.catalogue.torture import candidates, known
from tests.catalogue.torture.fault import FAIL, KINDS, PASS, Place, Trigger
from tests.catalogue.torture.judge import Row, Seen, troubles
from tests.catalogue.torture.records import Records
from tpcheck import Check

#: Kinds that leave state behind: when the candidate is gone, or between two cases of a check.
_WHEN_GONE = ("deterministic-mode", "grad-mode", "all-reduce", "environment-emptied")
_WITHIN = {
    "poison": "Unwritten",
    "default-dtype": "RowLinear",
    "hook-on-every-forward": "WithoutItsReduction",
    "functions-of-nn": "RowLinear",
}


def checks() -> dict[str, tuple[Check, frozenset[str]]]:
    """Name → the check and the verdicts that it may have."""
    found = {name: (check, PASS) for name, check in known.RIGHT.items()}
    found |= {
        f"{name}-again": (one.named(f"{name}-again"), PASS) for name, (one, _) in found.items()
    }
    found |= {name: (check, FAIL) for name, check in known.WRONG.items()}
    for dies in (OneRankIsKilled, OneRankRaises):
        found[dies.__name__] = (check(dies), FAIL)
    for name in _WHEN_GONE:
        found[name] = (candidates.faulty(_trigger(name), name), PASS)
    for name, second in _WITHIN.items():
        own = PASS if second in known.RIGHT else FAIL
        one = candidates.within(_trigger(name), known.WITHIN[second], name)
        found[name] = (one, own)
    assert len(found) == 20
    return found


def _trigger(name: str) -> Trigger:
    kind = KINDS[name]
    return Trigger(kind.act, kind.variants[0], Place.DESTRUCTOR, whole=True)


def main(count: int, seed: int, records: Records) -> bool:
    """Runs `count` orders; whether every verdict, and every diagnosis, was the same in each."""
    from tests.catalogue.torture import worker

    done = {row.number for row in records.rows()}
    if todo := [number for number in range(count) if number not in done]:
        limit = worker.TIME_LIMIT
        with worker.open_session("gloo", worker.RANKS, time_limit=limit) as session:
            session.require_trust()
            for number in todo:
                row = _ordered(number, seed, session)
                records.add(row)
                print(f"permutation {number:3} {row.seconds:5.1f} s", *troubles([row]), flush=True)
    rows = [row for row in records.rows() if row.number < count]
    wrong = troubles(rows) + differing(rows)
    print(f"\n{len(rows)} permutations of 20 checks: ", *(wrong or ["the same verdicts in each"]))
    return not wrong


def _ordered(number: int, seed: int, session: object) -> Row:
    from tests.catalogue.torture import worker

    named = checks()
    order = list(named)
    random.Random(f"{seed} {number}").shuffle(order)
    row = Row("gloo", number, "permutation", " ".join(order))
    begun = time.monotonic()
    results = worker.verify_all([named[name][0] for name in order], session, worker.OPTIONS)
    row.seen = [
        worker.seen("check", named[name][1], result)
        for name, result in zip(order, results, strict=True)
    ]
    row.seconds = round(time.monotonic() - begun, 3)
    return row


def differing(rows: list[Row]) -> list[str]:
    """Checks whose verdict or diagnosis is not the same in every order."""
    told: dict[str, set[tuple[str, str]]] = {}
    for row in rows:
        for one in row.seen:
            told.setdefault(one.name, set()).add(_essence(one))
    return [f"{name}: {sorted(of)}" for name, of in sorted(told.items()) if len(of) > 1]


def _essence(one: Seen) -> tuple[str, str]:
    """A check's verdict, and the code of its diagnosis."""
    return one.verdict, one.reason.partition(":")[0]
