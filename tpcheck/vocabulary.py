"""The closed lists: kinds of evidence, diagnosis codes, phases of a case. Their words are what JSON
reports, corpus files and budgets hold; `report/` has the sentences.
"""

from __future__ import annotations

from enum import StrEnum

#: The engines whose ranks have their tensors on GPUs.
ON_GPUS = frozenset({"nccl", "gloo-cuda"})


class Kind(StrEnum):
    """The kinds of evidence that a mismatch may be."""

    OUTPUT = "output"
    INPUT_GRAD = "input_grad"
    PARAM_GRAD = "param_grad"
    PARAM = "param"
    OPTIMIZER_STATE = "optimizer_state"
    LOSS = "loss"
    GRAD_NORM = "grad_norm"
    REPLICA = "replica"
    SHARDING = "sharding"
    COLLECTIVE = "collective"
    COMMUNICATION_BYTES = "communication_bytes"
    SAVED_BYTES = "saved_bytes"
    EXCEPTION = "exception"
    HANG = "hang"
    CRASH = "crash"
    MEMORY = "memory"
    RACE = "race"
    DISCIPLINE = "discipline"
    MASK = "mask"
    CUSTOM_OP = "custom_op"
    WITNESS = "witness"

    @property
    def is_output(self) -> bool:
        """Whether it is what a forward returns."""
        return self in (Kind.OUTPUT, Kind.LOSS)

    @property
    def is_gradient(self) -> bool:
        return self in (Kind.INPUT_GRAD, Kind.PARAM_GRAD)

    @property
    def is_tensor(self) -> bool:
        """Whether a tensor is compared with the reference's, element by element."""
        return self.is_output or self.is_gradient or self.is_of_parameter

    @property
    def is_of_parameter(self) -> bool:
        """Whether there is one of each parameter, which is the same on ranks with the same part."""
        return self in (Kind.PARAM_GRAD, Kind.PARAM, Kind.OPTIMIZER_STATE)

    @property
    def is_value(self) -> bool:
        """Whether something was computed, and computed wrongly."""
        return self in _COMPUTED

    @property
    def is_reduced(self) -> bool:
        """Whether it may be what an all-reduce of partial sums leaves, forward or backward."""
        return self.is_output or self.is_gradient

    @property
    def order(self) -> int:
        """The place of a value in the order of computation: what is earlier sorts first."""
        return _COMPUTED.index(self)


_COMPUTED = (
    Kind.OUTPUT,
    Kind.LOSS,
    Kind.INPUT_GRAD,
    Kind.PARAM_GRAD,
    Kind.GRAD_NORM,
    Kind.OPTIMIZER_STATE,
    Kind.PARAM,
    Kind.REPLICA,
)


class Code(StrEnum):
    """The diagnoses: the causes that tpcheck can name. `report/diagnoses.py` says what each is."""

    MISSING_ALL_REDUCE = "missing-all-reduce"
    SUMMED_TWICE = "summed-twice"
    AVERAGED_NOT_SUMMED = "averaged-not-summed"
    PARTIAL_NOT_REDUCED = "partial-not-reduced"
    REPLICAS_DIFFER = "replicas-differ"
    SHARD_ORDER = "shard-order"
    KV_HEAD_MAP = "kv-head-map"
    BIAS_PER_RANK = "bias-per-rank"
    GRADIENT_DROPPED = "gradient-dropped"
    WRONG_GROUP = "wrong-group"
    VOCAB_MASK = "vocab-mask"
    RNG_NOT_COORDINATED = "rng-not-coordinated"
    SCALE_NOT_SHARED = "scale-not-shared"
    PRECISION_LOSS = "precision-loss"
    UNWRITTEN_MEMORY = "unwritten-memory"
    STALE_BUFFER = "stale-buffer"
    WRONG_BUFFER = "wrong-buffer"
    PLAN_ENTRY_UNMATCHED = "plan-entry-unmatched"
    PARAMETER_NOT_SHARDED = "parameter-not-sharded"
    WRONG_PLACEMENT = "wrong-placement"
    EXTRA_COMMUNICATION = "extra-communication"
    COLLECTIVE_MISMATCH = "collective-mismatch"
    DEADLOCK = "deadlock"
    RANK_CRASH = "rank-crash"
    ORDER_OF_PARALLELISMS = "order-of-parallelisms"
    TIED_WEIGHTS_SPLIT = "tied-weights-split"
    OUT_OF_BOUNDS = "out-of-bounds"
    INTEGER_OVERFLOW = "integer-overflow"
    BROKEN_PROMISE = "broken-promise"
    RACE = "race"
    INPUT_OVERWRITTEN = "input-overwritten"
    NOT_REPEATABLE = "not-repeatable"
    SECOND_BACKWARD = "second-backward"
    SHARED_INPUT = "shared-input"
    NOT_FROZEN = "not-frozen"
    OVERFLOW_IGNORED = "overflow-ignored"
    ALIASED_ARGUMENTS = "aliased-arguments"
    PARTIAL_GRADIENTS = "partial-gradients"
    ROWS_NOT_INDEPENDENT = "rows-not-independent"
    STRIDE_IGNORED = "stride-ignored"
    UPSTREAM_IGNORED = "upstream-ignored"
    WRONG_CONFIGURATION = "wrong-configuration"
    CUSTOM_OP = "custom-op"
    PATH_NOT_TAKEN = "path-not-taken"
    UNCLASSIFIED = "unclassified"


class Phase(StrEnum):
    """What a rank is at."""

    BUILD = "build"
    SAVE = "save"
    LOAD = "load"
    INFERENCE = "inference"  # a forward before another, without gradients
    FORWARD = "forward"
    BACKWARD = "backward"
    SCHEDULE = "schedule"  # forwards and backwards in the candidate's own order
    STEP = "step"


class End(StrEnum):
    """The two ends of a module, at which tensors cross its boundary."""

    IN = "in"
    OUT = "out"


class Fault(StrEnum):
    """What may be wrong with how a parameter is held."""

    MISSING = "missing"
    UNEXPECTED = "unexpected"
    ELSEWHERE = "elsewhere"
    WHOLE = "whole"
    STORAGE = "storage"
    READ = "read"
    NONE_SHARDED = "none"
    SHAPE = "shape"
    PLACEMENT = "placement"
    PLAN = "plan"


class Impasse(StrEnum):
    """Why ranks were given up."""

    PEER_FAILED = "peer-failed"
    PEER_FINISHED = "peer-finished"
    PEER_ABSENT = "peer-absent"
    AT_WORK = "at-work"
    TOO_LONG = "too-long"
    EVERY_RANK_WAITS = "every-rank-waits"
    STILL_BUILDING = "still-building"


class Lost(StrEnum):
    """How a rank's process was lost to the driver."""

    ENDED = "ended"
    CLOSED = "closed"  # its socket, and lives on
    GARBLED = "garbled"  # it wrote to its socket what is not a message


class Access(StrEnum):
    """What a kernel's program does to memory."""

    LOAD = "load"
    STORE = "store"
    ATOMIC = "atomic"


class Habit(StrEnum):
    """What a call may do besides its result."""

    CHANGES_INPUT = "changes-input"
    CHANGES_COTANGENT = "changes-cotangent"
    REUSES_OUTPUT = "reuses-output"  # a later call writes into what this one has returned
    REUSES_GRADIENT = "reuses-gradient"  # the same of a gradient that backward has returned
    REUSES_SAVED = "reuses-saved"  # the next call writes into what this one keeps for backward
    NOT_REPEATED = "not-repeated"  # run again, it gives other bits
    GOES_BY_ADDRESS = "goes-by-address"  # of a tensor whose numbers have changed: what it had been
    SECOND_BACKWARD = "second-backward"  # through the same graph: other gradients, or it raises
    TRAINS_FROZEN = "trains-frozen"  # backward leaves a gradient of what takes none
    SHARED_INPUT = "shared-input"  # where its input goes elsewhere, too: other gradients, or raises


class Statistic(StrEnum):
    """A number of each token's logits that crosses ranks on the way to a loss."""

    LARGEST = "largest"
    SUM = "sum"
    SUM_OF_EXPONENTIALS = "sum-of-exponentials"
    MEAN = "mean"
    SQUARE_OF_LOG = "square-of-log"  # of the sum of exponentials, as a z-loss has it


class Counted(StrEnum):
    """How gradients were counted on the way to their norm."""

    OWN = "own"  # the rank's own part alone
    COPIES = "copies"  # once for each rank that has them
    ONE_RANK = "one-rank"
    ALL_BUT_ONE = "all-but-one"  # without one rank's part
    NAMES = "names"  # once for each of its names
    SUM_OF_RANKS = "sum-of-ranks"  # norms were added up, not their powers
    ONE_AXIS = "one-axis"  # over the ranks along one axis of the mesh alone
    SOME_RANKS = "some-ranks"  # over some that are not those along one axis
    AGAIN = "again"  # added up over the ranks along one axis once more
    MEAN = "mean"  # their powers averaged over the ranks along one axis
    NEVER = "never"


class OpTest(StrEnum):
    """The tests of `torch.library.opcheck`, in their order, by its own names."""

    SCHEMA = "test_schema"
    AUTOGRAD = "test_autograd_registration"
    FAKE = "test_faketensor"
    AOT_DISPATCH = "test_aot_dispatch_dynamic"


class Uncompiled(StrEnum):
    """Why a function that is handed to `torch.compile` ran eagerly."""

    NOTHING = "nothing"  # no graph was made of it
    LIMIT = "limit"  # it was compiled as often as torch allows


class Unjudged(StrEnum):
    """Why an element was not judged: why no wrong value there could have been told."""

    NOT_FINITE = "not-finite"  # the reference is NaN or infinite there, in float64
    OVERFLOW = "overflow"  # the reference overflows there in the case's dtype
    MAY_OVERFLOW = "may-overflow"  # a sum may, in another order, or numbers so large cancel
    TIE = "tie"  # rounding alone decides what stands there
    NOT_COMPARED = "not-compared"  # no rank held it against the reference
    SHARED = "shared"  # data-parallel ranks share a buffer that their own data would make differ
    EXTRA = "extra"  # the candidate returns it, and the reference does not


class Rule(StrEnum):
    """The rules that mutants may be judged by: ours, and those of others beside it."""

    OURS = "tpcheck"
    ASSERT_CLOSE = "assert_close"
    TWICE_OWN_ERROR = "twice own error"
    FROBENIUS = "frobenius 8.3 %"
    FORWARD_ONLY = "forward only"
    SUM_LOSS = ".sum() loss"
