"""`python -m tests.catalogue.accounting`: what a rank holds and sends of a transformer block, as
measured and by formula; the table of `docs/accounting.md`.

One step of AdamW in float32 of a block in bfloat16: RMS norm, SwiGLU, no biases. Letters: R degree,
B batch, S sequence, H hidden, A query heads, G key/value heads, D head_dim, I intermediate (INNER).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from fixtures.mutants.build import SP, Subject
from fixtures.parallel.block import Block
from tpcheck import Case, Check, Training, specs
from tpcheck.budget import ring
from tpcheck.engines.engine import Engine
from tpcheck.runner.runner import Runner
from tpcheck.specs.block import block_dims
from tpcheck.verdict import CaseResult, Verdict
from tpcheck.vocabulary import Phase

B, S, H, A, G, D, INNER = 2, 16, 64, 8, 2, 8, 128
DEGREES = (2, 4, 8)
DIMS = {
    **{"batch": B, "seq": S, "hidden": H, "heads": A, "kv_heads": G, "head_dim": D},
    **{"intermediate": INNER, "activation": "swiglu", "norm": "rms", "bias": False},
    **{"qk_norm": False, "rotary": True, "causal": True},
}
#: Of a number in the model's dtype, and in the optimizer's.
LOW, HIGH = 2, 4
#: Parameters of a block: q, k, v, o, gate, up, down and two norms. AdamW counts each one's steps.
TENSORS = 9


@dataclass(frozen=True)
class Row:
    """One quantity on one rank, in bytes."""

    what: str
    degree: int
    sequence_parallel: bool
    measured: float
    formula: float

    @property
    def same(self) -> bool:
        """Whether the formula gives what was measured."""
        return self.measured == self.formula


def held(degree: int) -> int:
    """Elements of the parameters of one rank: projections of A · D and I columns are divided by R,
    those of K/V heads as far as there are heads, norms not at all."""
    divided = 2 * A * D * H + 3 * INNER * H
    keys = 2 * max(G // degree, 1) * D * H
    return divided // degree + keys + 2 * H


def sent(degree: int, phase: Phase, sequence_parallel: bool) -> float:
    """Elements that one rank sends in a ring: twice per block each way what an all-reduce of the
    activations is, whether it is one or a reduce-scatter and an all-gather.

    In backward there are besides the gradients of what ranks have in common: of K/V heads with
    replicas, all of them in one all-reduce; under SP of the norms.
    """
    found = 2 * ring("all_reduce", B * S * H, degree)
    if phase is Phase.BACKWARD and degree > G:
        found += ring("all_reduce", 2 * G * D * H, degree)
    if phase is Phase.BACKWARD and sequence_parallel:
        found += ring("all_reduce", 2 * H, degree)
    return found


def adamw(named: dict[str, torch.nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(named.values(), lr=0.01)


def check_of(sequence_parallel: bool, block: type = Block) -> Check:
    """The check that is measured."""
    spec = specs.block(sequence_parallel=sequence_parallel)
    training = Training(adamw, steps=1, main=torch.float32)  # type: ignore[arg-type]
    spec = replace(spec, training=training, modes=())
    options = SP if sequence_parallel else {}
    subject = Subject(spec, block, lambda case: dict(block_dims(case)), options)
    return Check(spec, subject.candidate(), name="block", communication=True)


def rows(degree: int, sequence_parallel: bool, result: CaseResult) -> Iterator[Row]:
    """Everything that was measured, beside its formula."""
    n = held(degree)
    formulas = {
        "parameters": LOW * n,
        "gradients": LOW * n,
        "optimizer's state": 3 * HIGH * n + HIGH * TENSORS,
    }
    for what, due in formulas.items():
        measured = result.bytes[what.replace("'s ", "_")][0]
        yield Row(what, degree, sequence_parallel, measured, due)
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        events = [event for event in result.trace[0] if event.phase is phase]
        of = sum(ring(event.op, event.bytes, len(event.group)) for event in events)
        due = LOW * sent(degree, phase, sequence_parallel)
        yield Row(f"sent in {phase}", degree, sequence_parallel, of, due)
    budget = check_of(sequence_parallel).spec.budget
    kept = budget(result.case).saved if budget else None
    yield Row(
        "saved for backward", degree, sequence_parallel, LOW * result.saved, LOW * (kept or 0)
    )


def measured(engine: Engine) -> Iterator[Row]:
    """All rows."""
    for sequence_parallel in (False, True):
        runner = Runner(check_of(sequence_parallel), engine)
        for degree in DEGREES:
            result = runner.run(Case(DIMS, dtype="bfloat16", mesh={"tp": degree}))
            assert result.verdict is Verdict.PASS, result.mismatches
            yield from rows(degree, sequence_parallel, result)


def table(found: list[Row]) -> list[str]:
    """In Markdown: a line for each quantity, a column for each degree; one figure where the two are
    the same."""
    lines = ["| on one rank, in bytes | | " + " | ".join(f"R = {d}" for d in DEGREES) + " |"]
    lines.append("|---|---|" + "---|" * len(DEGREES))
    each = {(row.what, row.sequence_parallel): "" for row in found}
    for what, sp in sorted(each, key=lambda key: [k for k, _ in each].index(key[0])):
        own = [row for row in found if (row.what, row.sequence_parallel) == (what, sp)]
        cells = [f"{row.measured:,.0f}" if row.same else f"**{row}**" for row in own]
        lines.append(f"| {what} | {'SP' if sp else 'TP'} | {' | '.join(cells)} |")
    return lines


def main() -> int:
    with Engine("gloo", max(DEGREES)) as engine:
        found = list(measured(engine))
    print("\n".join(table(found)))
    print(f"\n{len(found)} figures, {sum(row.same for row in found)} as by formula")
    return 0 if all(row.same for row in found) else 1


if __name__ == "__main__":
    sys.exit(main())
