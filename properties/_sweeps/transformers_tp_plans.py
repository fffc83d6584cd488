"""Every architecture of the installed transformers that ships a `tp_plan`: one check each.

Minutes, so no part of `make verify`:

    tpcheck verify properties/_sweeps/transformers_tp_plans.py --examples 6
    tpcheck verify properties/_sweeps/transformers_tp_plans.py::mixtral
"""

from collections.abc import Callable, Sequence
from typing import Any

from tpcheck import Case, Check, KnownFinding
from tpcheck.adapters import tiny
from tpcheck.adapters.tiny_sizes import VOCAB
from tpcheck.adapters.transformers import architecture


def _finding(
    code: str | tuple[str, ...],
    when: Callable[[Case], bool],
    page: str,
    releases: str = ">=5.23,<5.25",
    **case: Any,
) -> KnownFinding:
    return KnownFinding(
        package="transformers",
        releases=releases,
        code=code,
        case=Case(dims={"batch": 1, "seq": 2, "vocab": VOCAB}, **case),
        when=when,
        page=f"docs/findings/{page}.md",
    )


def _always(case: Case) -> bool:
    return True


def _attends(case: Case) -> bool:
    """With one token the softmax has one entry, and q and k norms have no gradient."""
    return case["seq"] > 1


_crash = _finding("rank-crash", _always, "transformers-tp-plans")
_float32_crash = _finding(
    "rank-crash", lambda case: case.dtype == "float32", "transformers-tp-plans", dtype="float32"
)
_norms = _finding("partial-not-reduced", _attends, "transformers-tp-plans")
_accumulation = _finding(
    "summed-twice",
    lambda case: case.microbatches > 1 and _attends(case),
    "transformers-gradient-accumulation",
    releases=">=5.16,<5.25",
    microbatches=2,
)
_KNOWN: dict[str, Sequence[KnownFinding]] = {
    # both faults at once, where gradients are accumulated: one of the two is named
    "apertus": [
        _finding(("partial-not-reduced", "summed-twice"), _always, "transformers-tp-plans")
    ],
    "doge": [_crash],
    "esmc": [_crash],
    "glm5_next_text": [_crash],
    "inkling_text": [_crash],
    "llama4_text": [_crash],
    "muse_glimmer_text": [_float32_crash],
    "muse_spark_text": [_float32_crash],
    "neomme": [_crash],
    "qwen3_omni_moe_text": [_norms],
    "qwen3_vl_moe_text": [_norms],
    "sarvam_moe": [_norms],
}


def _known(name: str) -> Sequence[KnownFinding]:
    accumulates = "replicated_with_grad_allreduce" in tiny.styles(name)
    return _KNOWN.get(name) or ([_accumulation] if accumulates else [])


CHECKS: dict[str, Check] = {n: architecture(n, known=_known(n)) for n in tiny.architectures()}
globals().update({name.replace("-", "_"): check for name, check in CHECKS.items()})
