"""What goes through a layer: activations [B, S, ·], drawn and placed alike in every spec."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from tpcheck.case import Case
from tpcheck.layout import Layout
from tpcheck.placement import Entry, Replicate, Shard


def token_dims(
    sequence_parallel: bool, *, batch: int, seq: int = 5, parts: int = 2
) -> dict[str, Any]:
    """The dims `batch`, up to the given one, and `seq`: up to `seq`; under SP a multiple of R, at
    most `parts` times it."""
    from hypothesis import strategies as st

    from tpcheck import strategies

    multiples = strategies.multiples("tp", most=parts)
    return {
        "batch": st.integers(1, batch),
        "seq": multiples if sequence_parallel else strategies.sizes(1, seq),
    }


def dropped(rates: tuple[float, ...]) -> dict[str, Any]:
    """The dim `dropout`, one of the rates; without any there is no such dim, and no dropout."""
    from hypothesis import strategies as st

    return {"dropout": st.sampled_from(rates)} if rates else {}


def tokens_of(width: str) -> Callable[[Case, Any], Mapping[str, Tensor]]:
    """`inputs` of a spec: x [B, S, `case[width]`]."""

    def inputs(case: Case, draw: Any) -> Mapping[str, Tensor]:
        return {"x": draw("x", case["batch"], case["seq"], case[width])}

    return inputs


def residual_stream(sequence_parallel: bool) -> Shard | Replicate:
    """How the activations between layers are placed: sharded along the sequence under SP."""
    return Shard(1) if sequence_parallel else Replicate()


def stream_layout(params: Mapping[str, Entry], sequence_parallel: bool) -> Layout:
    """The layout of a layer whose input and output are both such activations."""
    stream = residual_stream(sequence_parallel)
    return Layout(params, inputs={"x": stream}, outputs={"output": stream})
