"""Runs a saved case again and says whether its evidence is the same to the last bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tpcheck.check import Check
from tpcheck.diagnosis.examine import examine_failure, unexplained
from tpcheck.engines import ranks_for
from tpcheck.errors import CaseError, InvalidArgument, let_through
from tpcheck.oracle.pose import pose
from tpcheck.process import own_settings
from tpcheck.protocol.bundle import write_bundle
from tpcheck.runner.runner import Runner
from tpcheck.search.addresses import address, file_of, shown
from tpcheck.search.collect import collect
from tpcheck.search.corpus import Corpus, Saved, is_file, is_outside
from tpcheck.search.excluded import excluded
from tpcheck.search.ledger import near
from tpcheck.search.session import Session, open_session, preload_of
from tpcheck.search.trouble import why
from tpcheck.verdict import CaseResult, CheckResult, Counterexample, Mismatch, Verdict


@dataclass(frozen=True)
class Replayed:
    """What a replay came to.

    Args:
        saved: the case as it was kept.
        result: of its check, in this case alone.
        identical: whether every mismatch is what it was, to the last bit.
    """

    saved: Saved
    result: CheckResult
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
    trust: bool = False,
) -> Replayed:
    """Replays one case of the corpus.

    A case that its check excludes by now runs, too: `result.notes` says so.

    Args:
        engine, ranks: by default the engine that found it, gloo where that was a launch's, as large
            as the case needs.
        dump: a folder for `expected.safetensors` and one `rankN.safetensors` per rank.
        check: `FILE::NAME`, where the check is no longer where it was; of the same spec.
        trust: whether the case may name code outside the working folder.

    Raises:
        CaseError: no such case, a corrupt one, or one that names code that is not to be trusted.
        InvalidArgument: the check is not to be found, is of another spec, or can't run.
    """
    kept = Corpus(corpus)
    saved = kept.find(id_or_file)
    found = check_of(saved, check, trust=trust)
    notes = notes_of(saved, found)
    # one process has no launch: the ranks of one are those of gloo
    by_itself = "gloo" if saved.engine == "torchrun" else saved.engine
    kind, preload = engine or by_itself, preload_of([found])
    size = ranks or max(saved.case.world_size, ranks_for([saved.case.tp], kind))
    if dump is not None:
        _make(dump)
    with open_session(kind, size, time_limit=time_limit, preload=preload) as session:
        command = kept.command(id_or_file, check=check, trust=trust)
        try:
            with own_settings.in_force(file_of(found)):
                again = _replayed(saved, session, Runner(found, session.engine), dump, command)
        except BaseException as error:
            let_through(error)
            raise InvalidArgument("; ".join([f"{found.title}: {why(error)}", *notes])) from error
    again.result.notes += notes
    return again


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"can't write tensors to {folder}: {error}") from None


def check_of(saved: Saved, name: str | None = None, *, trust: bool = False) -> Check:
    """The check of a saved case.

    Args:
        name: `FILE::NAME`, where it has moved.
        trust: whether the case may name code outside the working folder.

    Raises:
        CaseError: it is gone, or names code that is not to be trusted.
        InvalidArgument: it is not to be found, or is elsewhere and of another spec.
    """
    found = collect([name or _address(saved, trust)])
    if len(found) != 1:
        raise InvalidArgument(f"--check {name}: names {len(found)} checks; give FILE::NAME")
    _require_spec(saved, found[0])
    return found[0]


def _require_spec(saved: Saved, check: Check) -> None:
    """Raises where a case that is said to have moved was saved for another spec: whatever comes of
    it there says nothing of what failed."""
    now = check.spec.name
    if not _has_moved(saved, check) or (known := _spec_of(saved)) in (now, None):
        return
    raise InvalidArgument(
        f"case {saved.id} was saved for the spec {known!r} ({shown(saved.address) or saved.check}),"
        f" and {address(check)} is a check of {now!r}: give a check of {known!r}; where that is"
        f' called {now!r} now, write "spec": "{now}" in the file of the case'
    )


def _has_moved(saved: Saved, check: Check) -> bool:
    return shown(check.address()) != shown(saved.address)


def _spec_of(saved: Saved) -> str | None:
    """The name of the spec that a case was saved for. One that does not say it is asked for the
    check at its address, where that is still there, and may be run."""
    if saved.spec is not None:
        return saved.spec
    try:
        return collect([_address(saved, trust=False)])[0].spec.name
    except InvalidArgument:
        return None


def notes_of(saved: Saved, check: Check) -> list[str]:
    """What is to be said of a saved case whose spec may be another, or that its check excludes by
    now."""
    notes, now = [], check.spec.name
    if saved.spec is None and _has_moved(saved, check):
        notes.append(f"the case does not say for which spec it was saved; this check's is {now!r}")
    elif saved.spec not in (now, None):
        notes.append(f"the case was saved for the spec {saved.spec!r}; this check's is {now!r} now")
    elif _has_moved(saved, check):
        was = shown(saved.address) or saved.check
        notes.append(
            f"the case was saved for {was}, and this is {address(check)}: their specs have one "
            f"name, {now!r}, which is all that tells that they are the same"
        )
    if (what := excluded(check, saved.case)) is not None:
        notes.append(
            f"{what}: {check.title} excludes that now, so tpcheck verify leaves this case out"
        )
    return notes


def _address(saved: Saved, trust: bool) -> str:
    if saved.address is None:
        raise CaseError(
            f"case {saved.id} of {saved.check!r} was found in a check without a name in a file; "
            f"give --check FILE::NAME"
        )
    file, variable = saved.address
    if not trust and is_outside(file):
        raise CaseError(
            f"case {saved.id} names code outside the working folder ({file}), which would be run; "
            f"give --trust, or --check FILE::NAME"
        )
    if not is_file(Path(file)):
        raise CaseError(
            f"case {saved.id} belongs to {file}, which is gone; give --check FILE::NAME"
        )
    return f"{file}::{variable}"


def _replayed(
    saved: Saved, session: Session, runner: Runner, dump: Path | None, command: str
) -> Replayed:
    result = _run(runner, saved, dump)
    told = CheckResult(runner.check.title, result.verdict, result.engine, reason=result.unknown)
    if result.verdict is Verdict.FAIL:
        told.counterexample = _counterexample(runner, saved, result, command)
    elif session.untrusted is not None:
        told.verdict, told.reason = Verdict.UNKNOWN, session.untrusted
    return Replayed(saved, told, is_identical(saved, result))


def _run(runner: Runner, saved: Saved, dump: Path | None) -> CaseResult:
    posed = pose(runner.check.spec, saved.case)
    if dump is not None:
        write_bundle(posed.problems, dump / "expected.safetensors", together=False)
    return runner.execute(posed, dump=dump)


def _counterexample(
    runner: Runner, saved: Saved, result: CaseResult, command: str
) -> Counterexample:
    try:
        examined = examine_failure(runner, result)
    except InvalidArgument:  # the failure stands
        examined = unexplained(result)
    return Counterexample(
        id=saved.id,
        case=saved.case,
        mismatches=result.mismatches,
        diagnosis=examined.diagnosis,
        engine=result.engine,
        first_divergence=examined.first_divergence,
        reproduce=command,
        pictures=examined.pictures,
        known=examined.known or near(runner.check, saved.case, examined.diagnosis.code),
    )


def is_identical(saved: Saved, result: CaseResult) -> bool:
    """Whether the evidence is what was saved, to the last bit. Of training that is what the first
    wrong step shows: a search may have looked no further."""
    told, found = _until_wrong(saved.mismatches), _until_wrong(result.mismatches)
    if len(told) != len(found):
        return False
    return all(old.same_as(new) for old, new in zip(told, found, strict=True))


def _until_wrong(mismatches: Sequence[Mismatch]) -> list[Mismatch]:
    first = min((m.name.at.step for m in mismatches), default=0)
    return [m for m in mismatches if m.name.at.step == first]
