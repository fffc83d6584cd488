"""Reports for people: one line a check, and a page for each failure. Prose lives only here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpcheck.comms import frames
from tpcheck.verdict import CheckResult, Counterexample, FindingResult, Mismatch, Verdict

if TYPE_CHECKING:
    from tpcheck.mutation.mutant import Matrix, Row

_SHOWN = 4


def line(result: CheckResult) -> str:
    """`PASS  row_linear   24 cases  tp 2,4  float64,float32  1.3 s`; `KNOWN` in place of PASS where
    every case failed as a known finding says."""
    degrees = ",".join(map(str, result.tp_degrees)) or "–"
    dtypes = ",".join(result.dtypes) or "–"
    verdict = "KNOWN" if result.verdict is Verdict.PASS and result.only_known else None
    head = f"{verdict or result.verdict.value:<8}{result.name:<25} "
    return (
        f"{head}{result.examples:>4} cases  tp {degrees:<7} {dtypes:<26} "
        f"{result.engine:<8}{result.seconds:6.1f} s"
    )


def skipped(name: str, reason: str) -> str:
    """A check that can't run here."""
    return f"{'SKIPPED':<8}{name:<25} {reason}"


def findings(result: CheckResult) -> list[str]:
    """A line a known finding: what is declared, where it is written up, how to see it again."""
    return [f"{'':8}known finding {_finding(row, result.examples)}" for row in result.findings]


def _finding(row: FindingResult, examples: int) -> str:
    declared = f"{row.code} in {row.package} {row.releases}"
    what = {
        "known": f"{row.failed} of {examples} cases, as declared",
        "does-not-show": f"{row.passed} cases that should fail pass",
        "other-diagnosis": f"a case of it is diagnosed {row.otherwise}",
        "other-release": f"{row.installed or 'nothing'} is installed, so it does not count",
        "not-run": "not run (its degree, dtype or ranks were not asked for, or time was up)",
    }[row.state]
    found = row.counterexample
    again = f"; {found.reproduce}" if found is not None and found.reproduce else ""
    return f"{declared}: {what}; {row.page}{again}"


def failure(result: CheckResult) -> str:
    """All that a person needs to see it, understand it and see it again."""
    found = result.counterexample
    if found is None:
        return f"{result.verdict.value}  {result.name}: {result.reason}"
    lines = [headline(result.name, found)]
    lines += [f"  {text}" for text in _evidence(found.mismatches)]
    diagnosis = found.diagnosis
    lines.append(f"  diagnosis      {diagnosis.code}: {diagnosis.message}")
    if found.first_divergence:
        lines.append(f"  first seen in  {found.first_divergence}")
    lines.append(f"  case           {found.case.describe()}")
    if found.reproduce:
        lines.append(f"  reproduce      {found.reproduce}")
    return "\n".join(lines)


def headline(name: str, found: Counterexample) -> str:
    """`FAIL  row_linear › output   tp=2 float64 gloo`."""
    tensor = found.mismatches[0].tensor if found.mismatches else "?"
    mesh = " ".join(f"{axis}={size}" for axis, size in found.case.mesh.items())
    left = f"{Verdict.FAIL.value}  {name} › {tensor}"
    return f"{left:<60} {mesh} {found.case.dtype} {found.engine}"


def _evidence(mismatches: list[Mismatch]) -> list[str]:
    out: list[str] = []
    told: set[str] = set()  # ranks whose place was shown with another's event
    for mismatch in mismatches[:_SHOWN]:
        lines = describe(mismatch).splitlines()
        if str(mismatch.rank) in told:
            where = (i for i, text in enumerate(lines) if text.startswith("  rank "))
            lines = lines[: next(where, len(lines))]
        told |= set(mismatch.detail.get("stacks") or {})
        out += lines
    if len(mismatches) > _SHOWN:
        kinds = sorted({m.kind for m in mismatches[_SHOWN:]})
        out.append(f"and {len(mismatches) - _SHOWN} more ({', '.join(kinds)})")
    return out


def describe(mismatch: Mismatch) -> str:
    """One mismatch in words; some take several lines (a stack, the ranks' last collectives)."""
    detail = mismatch.detail
    what = (
        mismatch.kind if mismatch.kind == mismatch.tensor else f"{mismatch.kind} {mismatch.tensor}"
    )
    where = f"rank {mismatch.rank} {what}"
    if mismatch.index is not None:
        return f"{where} {list(mismatch.index)}  {_numbers(mismatch)}"
    if mismatch.kind in ("exception", "hang", "crash", "collective"):
        return _event(mismatch)
    if mismatch.kind == "replica":
        ranks = detail.get("ranks")
        return f"{where}: ranks {ranks} must hold the same bits ({detail.get('of')}) and don't"
    if "shape" in detail:
        return f"{where}: shape {detail['shape']}, expected {detail['expected_shape']}"
    if "expected_placement" in detail:
        return f"{where}: {detail['placement']}, the layout says {detail['expected_placement']}"
    return f"{where}: {detail.get('reason') or detail}"


def _numbers(mismatch: Mismatch) -> str:
    detail = mismatch.detail
    text = (
        f"expected {mismatch.expected:.17g}  got {mismatch.actual:.17g}  "
        f"off by {mismatch.error:.3g}, bound {mismatch.bound:.2g}"
    )
    if "wrong" in detail:
        text += f"  ({detail['wrong']} of {detail['of']} differ)"
    if "gain_error" in detail:
        error, bound = detail["gain_error"], detail["gain_bound"]
        text += f"  (all of it by a common {error:.2g} of its size, bound {bound:.2g})"
    if "norm_error" in detail:
        error, bound = detail["norm_error"], detail["norm_bound"]
        text += f"  (whole tensor: {error:.3g} σ, bound {bound:.3g} σ)"
    if "dtype" in detail:
        text += f"  (dtype {detail['dtype']}, expected {detail['expected_dtype']})"
    return text


def _stack(stack: str) -> list[str]:
    """The frames nearest to the fault: a traceback has them last, faulthandler's dump first."""
    lines = [text for text in stack.strip().splitlines() if set(text.strip()) - set("^~")]
    if "most recent call first" not in stack:
        return lines[-4:]
    shown = [text for text in lines if text.lstrip().startswith("File")]
    own = [text for text in shown if frames.is_users(text.split('"')[1])]
    return (own or shown)[:4]


def _event(mismatch: Mismatch) -> str:
    detail: dict[str, Any] = mismatch.detail
    what = detail.get("reason", "")
    if mismatch.kind == "exception" and "type" in detail:
        what = f"{detail['type']}: {what} (in {detail.get('phase', '?')})"
    lines = [f"rank {mismatch.rank} {mismatch.kind}: {what}"]
    own = str(mismatch.rank)
    peers = detail.get("peers") or {own: detail.get("last")}
    for rank, last in sorted(peers.items()):
        if last:
            lines.append(f"  rank {rank} last entered  {last[-1]}")
            lines += [f"{'':<12}before that  {text}" for text in reversed(last[:-1])]
    if "ranks" in detail and isinstance(detail["ranks"], dict):
        lines += [f"  rank {rank} ran  {ops}" for rank, ops in detail["ranks"].items()]
    stacks = {own: detail.get("stack")} | dict(detail.get("stacks") or {})
    for rank, stack in stacks.items():
        lines += [f"  rank {rank} is here:"] if stack and len(stacks) > 1 else []
        lines += [f"  {text}" for text in _stack(str(stack or ""))]
    return "\n".join(lines)


def kill_line(row: Row) -> str:
    """One mutant's fate in a line."""
    fate = "killed" if row.killed else "SURVIVED"
    name = row.diagnosis + ("" if row.named else f" (expected {' or '.join(row.expected)})")
    kinds = ",".join(row.kinds)
    return f"{fate:<9}{row.mutant:<52}{row.examples:>3} ex {row.seconds:5.1f} s  {kinds}: {name}"


def matrix(found: Matrix) -> str:
    """The sums of a kill matrix, then survivors and misnamed mutants."""
    sums = found.to_dict()
    lines = [
        f"{sums['killed']} of {sums['mutants']} killed, {sums['named']} with the expected "
        f"diagnosis, {sums['misnamed']} with a wrong one; median {sums['median_examples']} "
        f"examples; {sums['seconds']} s"
    ]
    for row in found.ordered():
        if not row.killed or not row.named:
            lines.append(f"  {kill_line(row)}  [{row.case}] {row.message}")
    return "\n".join(lines)
