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

_WEIGHT = replace(_kernel("float32", rows=33, width=65), gradients="some")
_PITCH = _kernel("float32", "mixed", 38, rows=2, width=4)
_LAST_ID = _kernel("float32", seed=4, tokens=12, vocab=128)
_PAIRS = _kernel("bfloat16", "padded", rows=3, length=5, dilation=2)
_LARGE = replace(_kernel("bfloat16", rows=1, width=264), family="shifted", magnitude=4)
_ONE_ROW = replace(_kernel("float32", rows=1, width=97), family="shifted")
_LAST_TILE = _kernel("bfloat16", queries=67, keys=68, causal=True)
_COLUMNS = _kernel("bfloat16", "transposed", rows=41, width=65)
_ITSELF = _kernel("float32", "aliased", rows=33, others=33, width=5)
_MASKED = _kernel("float32", seed=320, rows=72, width=17)

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
    "rms_norm_weight_alone": (_WEIGHT, _without(_WEIGHT, width=66)),
    "swiglu_row_pitch": (_PITCH, _without(_PITCH, width=5)),
    "cross_entropy_padded_id": (_LAST_ID, _without(_LAST_ID, vocab=129)),
    "causal_conv_pairs": (_PAIRS, _without(_PAIRS, length=6)),
    "centre_fixed_point": (_LARGE, _without(_LARGE, width=100)),
    "layer_norm_one_row": (_ONE_ROW, _without(_ONE_ROW, rows=2)),
    "causal_softmax_last_tile": (_LAST_TILE, _without(_LAST_TILE, keys=69)),
    "bias_silu_reciprocal": (_COLUMNS, _without(_COLUMNS, rows=40)),
    "similarity_same_tensor": (_ITSELF, _without(_ITSELF, rows=32, others=32)),
    "masked_softmax_first_block": (_MASKED, replace(_MASKED, seed=321)),
}
