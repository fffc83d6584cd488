"""What `from_pretrained` loads at a degree, of architectures with unlike checkpoints: plain ones,
fused projections (phi3), experts that are merged as they are read (mixtral, qwen3_moe, glm4_moe),
stored in a layout of their own (gpt_oss), and one that is cut out of what is fused (hrm_text).

    tpcheck verify properties/_sweeps/transformers_pretrained.py --examples 8
"""

from collections.abc import Callable, Sequence
from typing import Any

from tpcheck import Case, Check, KnownFinding
from tpcheck.adapters import tiny
from tpcheck.adapters.pretrained import architecture
from tpcheck.adapters.tiny_sizes import VOCAB

ARCHITECTURES = (
    "llama",
    "qwen3",
    "qwen3_moe",
    "gemma3_text",
    "gpt_oss",
    "glm4_moe",
    "mixtral",
    "phi3",
    "hrm_text",
)


def _finding(
    code: str, when: Callable[[Case], bool], page: str, since: str, **case: Any
) -> KnownFinding:
    return KnownFinding(
        package="transformers",
        releases=f">={since},<5.25",
        code=code,
        case=Case(dims={"batch": 1, "seq": 2, "vocab": VOCAB}, dtype="float32", **case),
        when=when,
        page=f"docs/findings/{page}.md",
    )


_accumulation = _finding(
    "summed-twice",
    lambda case: case.microbatches > 1 and case["seq"] > 1,
    "transformers-gradient-accumulation",
    since="5.16",
    microbatches=2,
)
_fused = _finding(
    "kv-head-map", lambda case: case.tp > 1, "transformers-hrm-text-loading", since="5.23"
)


def _known(name: str) -> Sequence[KnownFinding]:
    if name == "hrm_text":
        return [_fused]
    accumulates = "replicated_with_grad_allreduce" in tiny.styles(name)
    return [_accumulation] if accumulates else []


CHECKS: dict[str, Check] = {name: architecture(name, known=_known(name)) for name in ARCHITECTURES}
globals().update(CHECKS)
