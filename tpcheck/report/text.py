"""Reports for people: one line per check, and a page for each failure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tpcheck.comms import frames
from tpcheck.errors import counted
from tpcheck.evidence import (
    Elsewhere,
    Misheld,
    OverBudget,
    PlacedOtherwise,
    Raised,
    ReplicasDiffer,
    TracesDiffer,
    WrongShape,
)
from tpcheck.report import judged, kinds, known_as, left, printed
from tpcheck.report.evidence import place, reason
from tpcheck.report.folded import fold
from tpcheck.report.numbers import numbers
from tpcheck.report.traces import side_by_side
from tpcheck.report.visible import name, one_line, visible
from tpcheck.verdict import CheckResult, Counterexample, FindingResult, Mismatch, Verdict
from tpcheck.vocabulary import Fault, Kind

_SHOWN = 4

#: Characters of a failure in short: some three lines of a dashboard. What an exception says may be
#: a whole tensor; the page has it.
SHORT = 300


def line(result: CheckResult) -> str:
    """`PASS  row_linear   24 cases  tp 2,4  float64,float32  1.3 s`; `KNOWN` in place of PASS where
    every case failed as a known finding says."""
    degrees = ",".join(map(str, result.tp_degrees)) or "–"
    dtypes = ",".join(result.dtypes) or "–"
    verdict = "KNOWN" if result.verdict is Verdict.PASS and result.only_known else None
    cases = counted(result.examples, "case", width=4)
    head = f"{verdict or result.verdict.value:<8}{title(result):<25} "
    return (
        f"{head}{cases:<10}  tp {degrees:<7} {dtypes:<26} {result.engine:<8}{result.seconds:6.1f} s"
    )


def title(result: CheckResult) -> str:
    """The check's name, and its address where another check of the run has the same name."""
    shown = name(result.name)
    return f"{shown} ({name(result.address)})" if result.namesake and result.address else shown


def skipped(title: str, reason: str) -> str:
    """A check that can't run here."""
    return f"{'SKIPPED':<8}{name(title):<25} {one_line(reason)}"


def undecided(title: str, reason: str) -> str:
    """A check that can't go on, of a verb without verdicts."""
    return f"{'UNKNOWN':<8}{name(title):<25} {one_line(reason)}"


def notes(result: CheckResult) -> list[str]:
    """What stands below a check's line: what cut it short, its known findings, what was not judged
    of it, and what its cases left behind."""
    left_out = judged.line(result.judged) if result.verdict is Verdict.PASS else None
    also = [*([left_out] if left_out else []), *left.lines(result.left)]
    first = [cut] if (cut := cut_short(result)) else []
    if result.smaller:
        first.append(f"{counted(result.smaller, 'more case')} to make the failure smaller")
    told = result.kinds if result.verdict is not Verdict.FAIL else None  # one that fails ends early
    of_kinds = [] if told is None else kinds.lines(told)
    return [
        *(f"{'':8}{text}" for text in first),
        *findings(result),
        *(f"{'':8}{text}" for text in also),
        *(part for text in of_kinds for part in fold(f"{'':8}{text}")),
    ]


def cut_short(result: CheckResult) -> str | None:
    """Why fewer cases ran than were asked for: `time was up (24 of 60 cases)`."""
    if result.asked is None:
        return None
    return f"time was up ({result.examples} of {counted(result.asked, 'case')})"


def findings(result: CheckResult) -> list[str]:
    """One line per known finding: what is declared, where it is written up, how to see it again;
    and one per note."""
    lines = [f"known finding {_finding(row, result.examples)}" for row in result.findings]
    return [f"{'':8}{one_line(text)}" for text in (*lines, *result.notes)]


def _finding(row: FindingResult, examples: int) -> str:
    declared = f"{row.code} in {row.package} {row.releases}"
    what = {
        "known": f"{row.failed} of {counted(examples, 'case')}, as declared",
        "does-not-show": f"{counted(row.passed, 'case')} that should fail did not",
        "other-diagnosis": f"a case of it is diagnosed {row.otherwise}",
        "other-release": f"{row.installed or 'nothing'} is installed, so it does not count",
        "not-run": "not run (its degree, dtype or ranks were not asked for, or time was up)",
    }[row.state]
    found = row.counterexample
    again = f"; {found.reproduce}" if found is not None and found.reproduce else ""
    return f"{declared}: {what}; {row.page}{again}"


def failure(result: CheckResult, *, verbose: bool = False) -> str:
    """All that a person needs to see it, understand it and see it again, in 100 columns but for
    what is to be pasted, for lines of code, and for a reason alone, which is one line.

    Args:
        verbose: with all of the evidence, and all digits.
    """
    found = result.counterexample
    if found is None:
        return f"{result.verdict.value}  {title(result)}: {result.reason}"
    diagnosis = found.diagnosis
    says = [
        ("diagnosis", f"{diagnosis.code}: {diagnosis.message}"),
        ("first seen in", found.first_divergence),
        ("known finding", None if found.known is None else known_as.sentence(found.known)),
        ("case", found.case.describe()),
        ("reproduce", found.reproduce),
        ("then", result.reason if result.trouble or result.fault else None),
    ]
    lines = [headline(title(result), found)]
    for text in _evidence(found.mismatches, verbose=verbose):
        lines += [f"  {text}"] if _is_code(text) else fold(f"  {text}")
    for label, what in says:
        if what:
            text = f"  {label:<15}{what}"
            lines += [text] if label == "reproduce" else fold(text, by=15)
    lines += printed.lines(found.printed, verbose=verbose)
    if verbose and (rows := side_by_side(found.trace)):
        lines += ["  collectives, each rank in its order; > where they part first:", *rows]
    return "\n".join(lines)


def page(result: CheckResult, *, verbose: bool = False) -> str:
    """The same with all that is not printable spelled out. A page that can't be written is one
    line, and the others are printed."""
    try:
        return visible(failure(result, verbose=verbose))
    except Exception as error:
        return f"{result.verdict.value}  {title(result)}: {unwritable(result, error)}"


def in_short(result: CheckResult) -> str:
    """`summed-twice (tp=2 float64): output: every element is world_size × the reference`, or
    `wrong-placement in output (tp=2 float64): up.weight as loaded …`: the diagnosis and the first
    wrong tensor, in a line; of what did not fail, that and why."""
    found = result.counterexample
    if found is None:
        text = f"{result.verdict.value}  {title(result)}: {result.reason}"
    else:
        mesh = " ".join(f"{axis}={size}" for axis, size in found.case.mesh.items())
        diagnosis, tensor = found.diagnosis, _first_tensor(found)
        seen = f" in {tensor}" if tensor and not diagnosis.message.startswith(tensor) else ""
        known = known_as.in_short(found.known)
        text = f"{diagnosis.code}{seen} ({mesh} {found.case.dtype}{known}): {diagnosis.message}"
    text = one_line(text)
    return text if len(text) <= SHORT else f"{text[: SHORT - 1]}…"


def _first_tensor(found: Counterexample) -> str:
    """The tensor that the first piece of evidence is about, if any."""
    first = next(iter(found.mismatches), None)
    if first is None or (first.kind == first.tensor and not first.kind.is_value):
        return ""
    return called(first) if first.kind.is_value else first.tensor


def unwritable(result: CheckResult, error: Exception) -> str:
    """Why there is no page: a fault of tpcheck's, with the evidence that it is about."""
    found = result.counterexample
    seen = {type(m.detail).__name__ for m in found.mismatches} if found else set()
    about = [*sorted(seen), *([type(found.diagnosis.cause).__name__] if found else [])]
    return (
        f"its report can't be written ({', '.join(about) or 'no evidence'}: "
        f"{type(error).__name__}: {one_line(str(error))}): please report it"
    )


def troubles(results: Sequence[CheckResult]) -> str:
    """The first check that can't run, and how many more there are."""
    troubled = [result for result in results if result.trouble]
    more = f" (and {counted(len(troubled) - 1, 'more check')})" if len(troubled) > 1 else ""
    return f"{title(troubled[0])}: {troubled[0].reason}{more}"


def together(troubled: Mapping[str, str]) -> str:
    """The same of a verb without verdicts, given name → reason."""
    name, reason = next(iter(troubled.items()))
    more = f" (and {len(troubled) - 1} more)" if len(troubled) > 1 else ""
    return f"{name}: {reason}{more}"


def headline(name: str, found: Counterexample) -> str:
    """`FAIL  row_linear › output   tp=2 float64 gloo`."""
    tensor = found.mismatches[0].tensor if found.mismatches else "?"
    mesh = " ".join(f"{axis}={size}" for axis, size in found.case.mesh.items())
    left = f"{Verdict.FAIL.value}  {name} › {tensor}"
    return f"{left:<60} {mesh} {found.case.dtype} {found.engine}"


def _evidence(mismatches: list[Mismatch], *, verbose: bool) -> list[str]:
    out: list[str] = []
    told: set[str] = set()  # ranks whose place was shown with another's event
    shown = len(mismatches) if verbose else _SHOWN
    for mismatch in mismatches[:shown]:
        lines = describe(mismatch, verbose=verbose).splitlines()
        if str(mismatch.rank) in told:
            where = (i for i, text in enumerate(lines) if text.startswith("  rank "))
            lines = lines[: next(where, len(lines))]
        told |= set(mismatch.scene.stacks or {})
        out += lines
    if left_out := mismatches[shown:]:
        kinds = sorted({m.kind.value for m in left_out})
        out.append(f"and {len(left_out)} more ({', '.join(kinds)}); replay -v shows all")
    return out


def _is_code(text: str) -> bool:
    """Whether it is a line of a stack: `File …` and, deeper, the source."""
    return 2 < len(text) - len(text.lstrip(" ")) < 8


def describe(mismatch: Mismatch, *, verbose: bool = False) -> str:
    """One mismatch in words; some take several lines (a stack, the ranks' last collectives)."""
    detail = mismatch.detail
    where = f"rank {mismatch.rank} {called(mismatch)}"
    if mismatch.index is not None:
        return f"{where} {list(mismatch.index)}  {numbers(mismatch, verbose=verbose)}"
    match detail:
        case ReplicasDiffer(of, ranks):
            return f"{where}: ranks {list(ranks)} must hold the same bits ({of}) and don't"
        case WrongShape(has, due) | Misheld(shape=tuple(has), expected_shape=tuple(due)):
            return f"{where}: shape {list(has)}, expected {list(due)}"
        case Misheld(placement=str(live)) | PlacedOtherwise(placement=live):
            return f"{where}: {live}, the layout says {detail.expected_placement}"
        case Misheld(fault=Fault.READ, storage=storage, expected=own) if storage:
            return f"{where}: {counted(storage, 'byte')} read, the rank's part is {own}"
        case Misheld(storage=storage, inside=other) if storage and other:
            kept = counted(storage, "byte")
            return f"{where}: the storage of {other} keeps {kept} alive, the whole tensor in it"
        case Misheld(storage=storage, expected=own) if storage:
            kept = f"the {detail.what}" if detail.what else "a view that"
            rest = f", its own are {own}" if own else ""
            return f"{where}: {kept} keeps {counted(storage, 'byte')} alive{rest}"
        case Elsewhere():
            return f"{where} {place(detail)}"
        case OverBudget(phase, ran):
            ops = ", ".join(f"{count} × {op}" for op, count in ran.items())
            sent, allowed = mismatch.actual or 0.0, mismatch.expected or 0.0
            return f"{where}: {sent:g} elements per rank in {phase}, {allowed:g} allowed ({ops})"
    return _event(mismatch) if mismatch.kind in _EVENTS else f"{where}: {reason(mismatch)}"


def called(mismatch: Mismatch) -> str:
    """`param_grad up.weight`; `output` for the output of that name."""
    kind, tensor = mismatch.kind, mismatch.tensor
    return kind.value if kind == tensor else f"{kind} {tensor}"


_EVENTS = (Kind.EXCEPTION, Kind.HANG, Kind.CRASH, Kind.COLLECTIVE)


def _stack(stack: str) -> list[str]:
    """The frames nearest to the fault: a traceback has them last, faulthandler's dump first."""
    lines = [text for text in stack.strip("\n").splitlines() if set(text.strip()) - set("^~")]
    if "most recent call first" not in stack:
        return lines[-4:]
    shown = [text for text in lines if text.lstrip().startswith("File")]
    own = [text for text in shown if frames.is_users(text.split('"')[1])]
    return (own or shown)[:4]


def _event(mismatch: Mismatch) -> str:
    """What a rank did, the collectives that each rank entered last, and where each stands."""
    detail, scene, own = mismatch.detail, mismatch.scene, str(mismatch.rank)
    what = reason(mismatch)
    if isinstance(detail, Raised):
        what = f"{detail.type}: {what} (in {scene.phase or '?'})"
    lines = [f"rank {mismatch.rank} {mismatch.kind}: {what}"]
    peers = scene.peers or {own: scene.last or ()}
    for rank, last in sorted(peers.items()):
        if last:
            lines.append(f"  rank {rank} last entered  {last[-1]}")
            lines += [f"{'':<12}before that  {text}" for text in reversed(last[:-1])]
    if isinstance(detail, TracesDiffer):
        lines += [f"  rank {rank} ran  {list(ops)}" for rank, ops in detail.ranks.items()]
    stacks = {own: scene.stack} | dict(scene.stacks or {})
    for rank, stack in stacks.items():
        lines += [f"  rank {rank} is here:"] if stack and len(stacks) > 1 else []
        lines += [f"  {text}" for text in _stack(str(stack or ""))]
    return "\n".join(lines)
