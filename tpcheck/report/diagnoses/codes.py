"""What each diagnosis code means, in a line; `docs/diagnoses.md` has the rest."""

from __future__ import annotations

from tpcheck.vocabulary import Code

MEANING = {
    Code.MISSING_ALL_REDUCE: "a sum over the ranks, or what they should exchange for it, is "
    "missing",
    Code.SUMMED_TWICE: "something is summed over the ranks more often than it should be",
    Code.AVERAGED_NOT_SUMMED: "a mean over the ranks stands where a sum belongs",
    Code.PARTIAL_NOT_REDUCED: "a gradient holds only this rank's part of the sum",
    Code.REPLICAS_DIFFER: "ranks that must hold the same tensor hold different ones",
    Code.SHARD_ORDER: "pieces are in the wrong order, or from the wrong rank",
    Code.KV_HEAD_MAP: "query heads meet the wrong K/V head",
    Code.BIAS_PER_RANK: "a bias is added on every rank before the sum, or on some ranks only",
    Code.GRADIENT_DROPPED: "a gradient does not arrive",
    Code.WRONG_GROUP: "a collective runs over the wrong group of ranks",
    Code.VOCAB_MASK: "tokens of another rank's vocabulary range, or at the edge of one's own, go "
    "wrong",
    Code.RNG_NOT_COORDINATED: "random masks agree where they must differ, or differ where not",
    Code.SCALE_NOT_SHARED: "a scale is computed from one shard where the whole is meant",
    Code.PRECISION_LOSS: "the computation is right, but in too low a precision",
    Code.UNWRITTEN_MEMORY: "uninitialized memory is read",
    Code.STALE_BUFFER: "a buffer is read too early, or was overwritten",
    Code.WRONG_BUFFER: "a buffer that no checkpoint holds is not what the reference computes",
    Code.PLAN_ENTRY_UNMATCHED: "names of the plan or the reference match nothing in the candidate",
    Code.PARAMETER_NOT_SHARDED: "a parameter that should be sharded is replicated",
    Code.WRONG_PLACEMENT: "a tensor is sharded along another dim, or not as the layout says",
    Code.EXTRA_COMMUNICATION: "more is communicated than the budget allows",
    Code.COLLECTIVE_MISMATCH: "ranks entered different collectives",
    Code.DEADLOCK: "ranks wait for one another",
    Code.RANK_CRASH: "a rank raised, or died",
    Code.ORDER_OF_PARALLELISMS: "parallelisms were applied in an order that breaks one of them",
    Code.TIED_WEIGHTS_SPLIT: "weights that are tied were split apart",
    Code.OUT_OF_BOUNDS: "a kernel accesses what is in none of its tensors",
    Code.INTEGER_OVERFLOW: "a kernel's integers wrap",
    Code.BROKEN_PROMISE: "what a kernel promises the compiler does not hold",
    Code.RACE: "what a kernel leaves depends on the order of its programs",
    Code.INPUT_OVERWRITTEN: "an input or an upstream gradient is changed, and nothing declares it",
    Code.NOT_REPEATABLE: "run again with the same numbers, it gives other bits",
    Code.SECOND_BACKWARD: "a second backward through the same graph gives other gradients",
    Code.NOT_FROZEN: "a parameter has a gradient, or moves, that takes none in the reference",
    Code.SHARED_INPUT: "where its inputs have another consumer, too, it gives other gradients",
    Code.ALIASED_ARGUMENTS: "a kernel is wrong where two of its arguments are one tensor",
    Code.PARTIAL_GRADIENTS: "it is right where all gradients are asked for only",
    Code.ROWS_NOT_INDEPENDENT: "an infinite number in one row makes another one wrong",
    Code.STRIDE_IGNORED: "a kernel is right for contiguous tensors only",
    Code.WRONG_CONFIGURATION: "an autotuned kernel is right in another of its configurations",
    Code.CUSTOM_OP: "an op of torch.library is not what it is registered as",
    Code.UPSTREAM_IGNORED: "a backward is right where upstream gradients are ones only",
    Code.PATH_NOT_TAKEN: "every value is right, and the way that is meant to give it was not taken",
    Code.UNCLASSIFIED: "none of the known causes fits",
}
