"""Of each fault a case that shows it, made by hand, and one beside it that lacks one of the
conditions, and does not."""

from dataclasses import replace

from tpcheck import Case

_ONE = {"tp": 1}


def _kernel(dtype: str, memory: str = "contiguous", seed: int = 0, **dims: int) -> Case:
    return Case(dims=dims, dtype=dtype, mesh=_ONE, memory=memory, seed=seed)


def _without(case: Case, **dims: int) -> Case:
    return replace(case, dims={**case.dims, **dims})


_FAR = replace(_kernel("float32", rows=67, width=1025), family="shifted")
_PART = _kernel("bfloat16", rows=9, width=128)
_RISES = _kernel("float64", "padded", 3, tokens=5, vocab=129)
_PADDED = _kernel("float64", tokens=12, outputs=9, inputs=3, seed=93)
_TILE = _kernel("float64", length=32, width=2, window=31)
_OFFSET = _kernel("bfloat16", "mixed", 4, rows=3, width=1)
_TWINS = _kernel("float32", tokens=33, experts=2, width=1, seed=2)
_PLACES = _kernel("bfloat16", tokens=257, experts=1, width=1)
_RUN = _kernel("float32", tokens=65, vocab=1, width=8)
_REPLACED = Case(
    dims={"batch": 1, "seq": 4, "in_features": 8, "out_features": 2, "bias": False},
    dtype="bfloat16",
    microbatches=2,
    memory="transposed",
)

#: Name of the check → a case in which it fails, and one in which it passes.
WITNESSES: dict[str, tuple[Case, Case]] = {
    "variance_in_one_pass": (_FAR, _without(_FAR, width=1024)),
    "dweight_part_unwritten": (_PART, _without(_PART, rows=8)),
    "log_sum_not_rescaled": (_RISES, replace(_RISES, memory="contiguous")),
    "chunk_of_padding_ends": (_PADDED, _without(_PADDED, outputs=3)),
    "tile_seen_in_full": (_TILE, _without(_TILE, window=30)),
    "upstream_offset_overflows": (_OFFSET, replace(_OFFSET, dtype="float32")),
    "twins_in_two_programs": (_TWINS, _without(_TWINS, tokens=32)),
    "places_counted_in_bfloat16": (_PLACES, _without(_PLACES, tokens=256)),
    "run_over_three_blocks": (_RUN, _without(_RUN, tokens=64)),
    "gradient_replaced": (_REPLACED, replace(_REPLACED, memory="offset")),
}
