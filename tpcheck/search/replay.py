"""Runs a saved case again and says whether its evidence is the same to the last bit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tpcheck.diagnosis.examine import examine_failure
from tpcheck.engines import ranks_for
from tpcheck.engines.engine import Engine
from tpcheck.errors import CaseError, InvalidArgument
from tpcheck.oracle.pose import pose
from tpcheck.protocol.bundle import write_bundle
from tpcheck.report import text
from tpcheck.runner.runner import Runner
from tpcheck.search.collect import collect
from tpcheck.search.corpus import Corpus, Saved
from tpcheck.verdict import CaseResult, CheckResult, Counterexample, Verdict


@dataclass(frozen=True)
class Replayed:
    """What a replay came to."""

    verdict: Verdict
    text: str
    identical: bool


def replay(
    id_or_file: str,
    *,
    engine: str | None = None,
    ranks: int | None = None,
    time_limit: float = 30.0,
    dump: Path | None = None,
    check: str | None = None,
    corpus: Path | None = None,
) -> Replayed:
    """Replays one case of the corpus.

    Args:
        engine, ranks: by default the engine that found it, as large as the case needs.
        dump: a folder for `expected.safetensors` and one `rankN.safetensors` a rank.
        check: `FILE::NAME`, where the check is no longer where it was.

    Raises:
        CaseError: no such case, or a corrupt one.
        InvalidArgument: the check is not to be found.
    """
    kept = Corpus(corpus)
    saved = kept.find(id_or_file)
    found = collect([check or _address(saved)])
    if len(found) != 1:
        raise InvalidArgument(f"--check {check}: names {len(found)} checks; give FILE::NAME")
    size = ranks or max(saved.case.world_size, ranks_for([saved.case.tp]))
    if dump is not None:
        dump.mkdir(parents=True, exist_ok=True)
    with Engine(
        engine or saved.engine, size, time_limit=time_limit, preload=found[0].spec.preload
    ) as ready:
        runner = Runner(found[0], ready)
        posed = pose(found[0].spec, saved.case)
        if dump is not None:
            write_bundle(posed.problems, dump / "expected.safetensors")
        result = runner.execute(posed, dump=dump)
        if result.verdict is not Verdict.FAIL:
            message = f"{result.verdict.value}  {saved.check} {saved.id}: the saved case passes now"
            return Replayed(result.verdict, message, False)
        examined = examine_failure(runner, result)
    same = _identical(saved, result)
    example = Counterexample(
        id=saved.id,
        case=saved.case,
        mismatches=result.mismatches,
        diagnosis=examined.diagnosis,
        engine=result.engine,
        first_divergence=examined.first_divergence,
        reproduce=kept.command(id_or_file, check=check),
    )
    shown = text.failure(
        CheckResult(saved.check, Verdict.FAIL, result.engine, counterexample=example)
    )
    note = "identical to the saved evidence, to the last bit" if same else _difference(saved)
    return Replayed(Verdict.FAIL, f"{shown}\n  compared       {note}", same)


def _address(saved: Saved) -> str:
    if saved.address is None:
        raise CaseError(
            f"case {saved.id} of {saved.check!r} was found in a check without a name in a file; "
            f"give --check FILE::NAME"
        )
    file, variable = saved.address
    if not Path(file).is_file():
        raise CaseError(
            f"case {saved.id} belongs to {file}, which is gone; give --check FILE::NAME"
        )
    return f"{file}::{variable}"


def _identical(saved: Saved, result: CaseResult) -> bool:
    if len(saved.mismatches) != len(result.mismatches):
        return False
    pairs = zip(saved.mismatches, result.mismatches, strict=True)
    return all(old.same_as(new) for old, new in pairs)


def _difference(saved: Saved) -> str:
    return f"not identical to what was saved ({len(saved.mismatches)} mismatches then)"
