"""Attention split by heads equals the plain one: every valid pair of query and K/V heads."""

from typing import Any

from fixtures.parallel.attention import Attention
from tpcheck import Case, Check, specs


def _attention(*, sequence_parallel: bool) -> Any:
    def build(case: Case, mesh: Any) -> Attention:
        return Attention(
            case["hidden"],
            case["heads"],
            case["kv_heads"],
            case["head_dim"],
            bias=case["bias"],
            norm=case["norm"],
            residual=case["residual"],
            qk_norm=case["qk_norm"],
            rotary=case["rotary"],
            causal=case["causal"],
            group=mesh["tp"].get_group(),
            sequence_parallel=sequence_parallel,
        )

    return build


attention = Check(
    specs.attention(), candidate=_attention(sequence_parallel=False), communication=True
)
attention_sp = Check(
    specs.attention(sequence_parallel=True),
    candidate=_attention(sequence_parallel=True),
    communication=True,
)
