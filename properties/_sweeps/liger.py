"""Every operation of the installed liger-kernel that runs on a CPU: one check each, and for each
option that takes another path through a kernel. docs/sweeps.md has what came of it.

    pip install liger-kernel
    tpcheck verify properties/_sweeps/liger.py --examples 25
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fixtures.released.check import DTYPES, released
from fixtures.released.liger import PACKAGE, op
from tpcheck import Argument, Case, KnownFinding
from tpcheck.tensors.strides import format_of

EPS = 1e-6
_ROWS, _WIDTH = Argument("rows", "width"), Argument("width")
_PAIR = {"gate": _ROWS, "up": _ROWS}


def strategies() -> Any:
    """Hypothesis's, imported where cases are drawn: ranks read this module, too."""
    from hypothesis import strategies

    return strategies


def rms(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * weight


# ---- norms


def _rms_norm(casting: str, *, offset: float = 0.0, in_place: bool = False) -> Any:
    return lambda x, weight: op("RMSNorm")(x, weight, EPS, offset, casting, in_place)


_RMS: dict[str, Any] = {"reference": rms, "arguments": {"x": _ROWS, "weight": _WIDTH}}
rms_norm_llama = released(PACKAGE, _rms_norm("llama"), **_RMS)
rms_norm_none = released(PACKAGE, _rms_norm("none"), **_RMS)
rms_norm_gemma = released(
    PACKAGE,
    _rms_norm("gemma", offset=1.0),
    reference=lambda x, weight: rms(x, 1 + weight),
    arguments=_RMS["arguments"],
)
layer_norm = released(
    PACKAGE,
    lambda x, weight, bias: op("LayerNorm")(x, weight, bias, EPS),
    reference=lambda x, weight, bias: F.layer_norm(x, weight.shape, weight, bias, EPS),
    arguments={"x": _ROWS, "weight": _WIDTH, "bias": _WIDTH},
)

# ---- activations: their backwards write the gradients over the saved inputs

swiglu = released(
    PACKAGE,
    lambda gate, up: op("SiLUMul")(gate, up),
    reference=lambda gate, up: F.silu(gate) * up,
    arguments=_PAIR,
    overwrites=("gate", "up"),
)
geglu = released(
    PACKAGE,
    lambda gate, up: op("GELUMul")(gate, up),
    reference=lambda gate, up: F.gelu(gate, approximate="tanh") * up,
    arguments=_PAIR,
    overwrites=("gate", "up"),
)

# ---- softmax and its relatives

softmax = released(
    PACKAGE,
    lambda x: op("Softmax")(x),
    reference=lambda x: x.softmax(-1),
    arguments={"x": _ROWS},
)


def _sparsemax(x: Tensor) -> Tensor:
    """Martins and Astudillo, "From softmax to sparsemax", 2016: the projection onto the simplex."""
    order = x.sort(-1, descending=True).values
    ranks = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
    inside = 1 + ranks * order > order.cumsum(-1)
    count = inside.sum(-1, keepdim=True)
    threshold = ((order * inside).sum(-1, keepdim=True) - 1) / count
    return (x - threshold).clamp_min(0)


sparsemax = released(
    PACKAGE,
    lambda x: op("Sparsemax")(x, -1),
    reference=_sparsemax,
    arguments={"x": _ROWS},
)

# ---- losses

_TOKENS = {"tokens": lambda sizes: strategies().integers(1, 5)}
_LOGITS = {
    "logits": Argument("tokens", "vocab"),
    "target": Argument("tokens", integers=(0, "vocab")),
}
IGNORED = -100


def _every_other(target: Tensor) -> Tensor:
    """The targets, with those of odd tokens ignored."""
    return target.where(torch.arange(len(target)) % 2 == 0, IGNORED)


def _losses(
    logits: Tensor, target: Tensor, *, smoothing: float, square: float, softcap: float | None
) -> Tensor:
    """Per token: cross-entropy with label smoothing, and `square` · logsumexp²."""
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    losses = F.cross_entropy(logits, target, reduction="none", label_smoothing=smoothing)
    return losses + square * logits.logsumexp(-1).square() * (target != IGNORED)


def _reduced(losses: Tensor, target: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return losses
    return losses.sum() / ((target != IGNORED).sum() if reduction == "mean" else 1)


def _strided(case: Case) -> bool:
    memory = format_of(case, "logits")
    return memory == "sliced" or (memory == "transposed" and case["tokens"] > 1)


_not_stored = KnownFinding(
    package="liger-kernel",
    releases="==0.8.5",
    code="stride-ignored",
    case=Case(dims={"tokens": 1, "vocab": 1}, memory="sliced"),
    when=_strided,
    page="docs/findings/liger-cross-entropy-strided-logits.md",
)


def _cross_entropy(
    reduction: str,
    *,
    smoothing: float = 0.0,
    square: float = 0.0,
    softcap: float | None = None,
    told: Any = torch.clone,
) -> Any:
    """told: what becomes of the drawn targets."""
    options = (None, IGNORED, square, smoothing, reduction, softcap)

    def reference(logits: Tensor, target: Tensor) -> Tensor:
        target = told(target)
        losses = _losses(logits, target, smoothing=smoothing, square=square, softcap=softcap)
        return _reduced(losses, target, reduction)

    return released(
        PACKAGE,
        lambda logits, target: op("CrossEntropy")(logits, told(target), *options)[0],
        reference=reference,
        arguments=_LOGITS,
        sizes=_TOKENS,
        overwrites=("logits",),
        known=[_not_stored],
    )


cross_entropy = _cross_entropy("mean")
cross_entropy_sum = _cross_entropy("sum")
cross_entropy_none = _cross_entropy("none")
cross_entropy_ignored = _cross_entropy("mean", told=_every_other)
cross_entropy_smoothing = _cross_entropy("mean", smoothing=0.1)
cross_entropy_z_loss = _cross_entropy("mean", square=1e-2)
cross_entropy_softcap = _cross_entropy("mean", softcap=30.0)
cross_entropy_all = _cross_entropy(
    "mean", smoothing=0.1, square=1e-2, softcap=30.0, told=_every_other
)

_PROJECTED = _TOKENS | {
    "hidden": lambda sizes: strategies().sampled_from([1, 2, 5, 16, 17]),
    "vocab": lambda sizes: strategies().sampled_from([2, 5, 16, 17, 33]),  # a program each
}
_scaled_again = KnownFinding(
    package="liger-kernel",
    releases="==0.8.5",
    code="second-backward",
    case=Case(dims={"tokens": 1, "vocab": 2, "hidden": 1}),
    when=lambda case: True,
    page="docs/findings/liger-second-backward.md",
)


def _fused_linear_cross_entropy(
    reduction: str,
    *,
    smoothing: float = 0.0,
    square: float = 0.0,
    softcap: float | None = None,
    told: Any = torch.clone,
    known: Any = (_scaled_again,),
) -> Any:
    options = (None, IGNORED, square, smoothing, reduction, softcap)

    def fn(x: Tensor, weight: Tensor, target: Tensor, bias: Tensor) -> Tensor:
        losses = op("FusedLinearCrossEntropy")(x, weight, told(target), bias, *options)[0]
        return losses.to(x.dtype)  # float32 for "none"

    def reference(x: Tensor, weight: Tensor, target: Tensor, bias: Tensor) -> Tensor:
        logits, target = F.linear(x, weight, bias), told(target)
        losses = _losses(logits, target, smoothing=smoothing, square=square, softcap=softcap)
        return _reduced(losses, target, reduction)

    return released(
        PACKAGE,
        fn,
        reference=reference,
        arguments={
            "x": Argument("tokens", "hidden"),
            "weight": Argument("vocab", "hidden"),
            "target": Argument("tokens", integers=(0, "vocab")),
            "bias": Argument("vocab"),
        },
        sizes=_PROJECTED,
        known=known,
        dtypes=("float32", "bfloat16") if known else DTYPES,  # in float16 gradients may be zero
        large=False,
    )


fused_linear_cross_entropy = _fused_linear_cross_entropy("mean")
fused_linear_cross_entropy_sum = _fused_linear_cross_entropy("sum")
fused_linear_cross_entropy_none = _fused_linear_cross_entropy("none", known=())
fused_linear_cross_entropy_all = _fused_linear_cross_entropy(
    "mean", smoothing=0.1, square=1e-2, softcap=30.0, told=_every_other
)

_STUDENT = {"student": Argument("tokens", "vocab"), "teacher": Argument("tokens", "vocab")}


def _mixed(student: Tensor, teacher: Tensor, beta: float) -> Tensor:
    """The generalised Jensen-Shannon divergence of Agarwal et al., 2024, of logarithms, summed over
    the vocabulary and averaged over tokens."""
    p, q = teacher.exp(), student.exp()
    if beta == 0:
        return (p * (teacher - student)).sum(-1).mean()
    if beta == 1:
        return (q * (student - teacher)).sum(-1).mean()
    mean = (beta * p + (1 - beta) * q).log()
    return (beta * p * (teacher - mean) + (1 - beta) * q * (student - mean)).sum(-1).mean()


def _jsd(beta: float) -> Any:
    def fn(student: Tensor, teacher: Tensor) -> Tensor:
        logs = student.log_softmax(-1), teacher.detach().log_softmax(-1)
        return op("JSD")(*logs, None, beta, IGNORED)

    def reference(student: Tensor, teacher: Tensor) -> Tensor:
        return _mixed(student.log_softmax(-1), teacher.detach().log_softmax(-1), beta)

    return released(PACKAGE, fn, reference=reference, arguments=_STUDENT, sizes=_TOKENS)


jsd = _jsd(0.5)
jsd_tenth = _jsd(0.1)
jsd_forward_kl = _jsd(0.0)
jsd_reverse_kl = _jsd(1.0)


TINY = 1e-10  # its default: targets below it have its logarithm


def _kl_div(reduction: str) -> Any:
    def fn(student: Tensor, teacher: Tensor) -> Tensor:
        given = student.log_softmax(-1), teacher.detach().softmax(-1)
        return op("KLDivLoss")(*given, reduction, False, TINY).to(student.dtype)  # float32

    def reference(student: Tensor, teacher: Tensor) -> Tensor:
        logs, target = student.log_softmax(-1), teacher.detach().softmax(-1)
        each = target * (target.clamp_min(TINY).log() - logs)
        if reduction == "none":
            return each
        return each.sum() / (len(each) if reduction == "batchmean" else 1)

    return released(PACKAGE, fn, reference=reference, arguments=_STUDENT, sizes=_TOKENS)


kl_div = _kl_div("batchmean")
kl_div_sum = _kl_div("sum")
kl_div_none = _kl_div("none")


def _tvd(reduction: str) -> Any:
    def fn(student: Tensor, teacher: Tensor) -> Tensor:
        given = student.softmax(-1), teacher.detach().softmax(-1)
        return op("TVDLoss")(*given, None, reduction).to(student.dtype)  # float32

    def reference(student: Tensor, teacher: Tensor) -> Tensor:
        each = (student.softmax(-1) - teacher.detach().softmax(-1)).abs() / 2
        if reduction == "batchmean":
            return each.sum(-1).mean()
        return each.sum() if reduction == "sum" else each

    return released(PACKAGE, fn, reference=reference, arguments=_STUDENT, sizes=_TOKENS)


tvd = _tvd("batchmean")
tvd_sum = _tvd("sum")
tvd_none = _tvd("none")

# ---- positions


def _turns(length: int, width: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """cos and sin [1, L, D] as transformers makes them: both halves of the width alike."""
    half = torch.arange(width // 2, dtype=torch.float64)
    positions = torch.arange(1, length + 1, dtype=torch.float64)  # at 0 nothing is turned
    angle = positions[:, None] * 10_000.0 ** (-2 * half / width)
    both = torch.cat((angle, angle), -1)[None]
    return both.cos().to(like.dtype), both.sin().to(like.dtype)


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [B, heads, L, D]."""
    first, second = x.chunk(2, -1)
    return x * cos[:, None] + torch.cat((-second, first), -1) * sin[:, None]


def _rope(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Times one, since its backward writes into the upstream gradients."""
    turned = op("Rope")(q, k, *_turns(q.shape[2], q.shape[3], q))
    return turned[0] * 1, turned[1] * 1


def _rope_reference(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    turns = _turns(q.shape[2], q.shape[3], q)
    return _turned(q, *turns), _turned(k, *turns)


rope = released(
    PACKAGE,
    _rope,
    reference=_rope_reference,
    arguments={
        "q": Argument("batch", "heads", "length", "width"),
        "k": Argument("batch", "kv_heads", "length", "width"),
    },
    sizes={
        "batch": lambda sizes: strategies().integers(1, 2),
        "heads": lambda sizes: strategies().integers(2, 4),
        "kv_heads": lambda sizes: strategies().integers(2, 3),
        "length": lambda sizes: strategies().integers(1, 5),
        "width": lambda sizes: strategies().sampled_from([2, 6, 8, 16, 34]),
    },
    overwrites=("q", "k"),
    known=[
        KnownFinding(
            package="liger-kernel",
            releases="==0.8.5",
            code="race",
            case=Case(dims={"batch": 2, "heads": 2, "kv_heads": 2, "length": 1, "width": 2}),
            when=lambda case: case["batch"] > 1 and case["length"] == 1,
            page="docs/findings/liger-rope-one-position.md",
        )
    ],
)

# ---- the other norms and activations


def _group_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x [N, groups, channels of one, length]."""
    channels, groups = x.shape[1] * x.shape[2], x.shape[1]
    flat = x.flatten(1, 2)
    return op("GroupNorm")(flat, weight.flatten(), bias.flatten(), channels, groups, EPS)


def _group_norm_reference(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    centred = x - x.mean((2, 3), keepdim=True)
    normal = centred * torch.rsqrt(centred.square().mean((2, 3), keepdim=True) + EPS)
    return (normal * weight[..., None] + bias[..., None]).flatten(1, 2)


_CHANNELS = Argument("groups", "channels")


def _grouped(shift: float, known: Any = (), **options: Any) -> Any:
    return released(
        PACKAGE,
        lambda x, weight, bias: _group_norm(x + shift, weight, bias),
        reference=lambda x, weight, bias: _group_norm_reference(x + shift, weight, bias),
        arguments={
            "x": Argument("batch", "groups", "channels", "length"),
            "weight": _CHANNELS,
            "bias": _CHANNELS,
        },
        sizes={
            "batch": lambda sizes: strategies().integers(1, 3),
            "groups": lambda sizes: strategies().integers(1, 3),
            "channels": lambda sizes: strategies().integers(1, 5),
            "length": lambda sizes: strategies().sampled_from([32, 33, 64, 67]),
        },
        known=known,
        **options,
    )


# its backward adds up with atomics, of which the interpreter has none of bfloat16
group_norm = _grouped(0.0, dtypes=("float32", "float16"))
group_norm_far = _grouped(
    4000.0,
    [
        KnownFinding(
            package="liger-kernel",
            releases="==0.8.5",
            code=(
                "unclassified",
                "upstream-ignored",
                "unwritten-memory",
            ),  # by size: digits, then NaN
            case=Case(dims={"batch": 1, "groups": 1, "channels": 1, "length": 32}),
            when=lambda case: True,
            page="docs/findings/liger-group-norm-variance.md",
        )
    ],
    dtypes=("float32",),
    large=False,
)


def _poly_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Zhuo et al., "Polynomial composition activations", 2024: of x³, x² and x."""
    powers = (x * x * x, x * x, x)
    normal = [p * torch.rsqrt(p.square().mean(-1, keepdim=True) + EPS) for p in powers]
    return weight[0] * normal[0] + weight[1] * normal[1] + weight[2] * normal[2] + bias


poly_norm = released(
    PACKAGE,
    lambda x, weight, bias: op("PolyNorm")(x, weight, bias, EPS, False),
    reference=_poly_norm,
    arguments={"x": _ROWS, "weight": Argument(3), "bias": Argument()},
)


def _fused_add(casting: str) -> Any:
    return released(
        PACKAGE,
        lambda x, residual, weight: op("FusedAddRMSNorm")(
            x, residual, weight, EPS, 0.0, casting, False
        ),
        reference=lambda x, residual, weight: (rms(x + residual, weight), x + residual),
        arguments={"x": _ROWS, "residual": _ROWS, "weight": _WIDTH},
    )


fused_add_rms_norm_llama = _fused_add("llama")
fused_add_rms_norm_none = _fused_add("none")
dyt = released(
    PACKAGE,
    lambda x, alpha, gamma, beta: op("DyT")(x, alpha, gamma, beta),
    reference=lambda x, alpha, gamma, beta: gamma * torch.tanh(alpha * x) + beta,
    arguments={"x": _ROWS, "alpha": Argument(1), "gamma": _WIDTH, "beta": _WIDTH},
)
relu_squared = released(
    PACKAGE,
    lambda x: op("ReLUSquared")(x),
    reference=lambda x: x.relu().square(),
    arguments={"x": _ROWS},
)
_SOME = {"rows": lambda sizes: strategies().sampled_from([1, 2, 3, 5, 33])}
modulated_rms_norm = released(
    PACKAGE,
    lambda x, weight, scale, shift: op("ModulatedRMSNorm")(
        x, weight, scale, shift, EPS, 0.0, "llama", False
    ),
    reference=lambda x, weight, scale, shift: rms(x, weight) * (1 + scale) + shift,
    arguments={"x": _ROWS, "weight": _WIDTH, "scale": _ROWS, "shift": _ROWS},
    sizes=_SOME,  # it asserts that there is a row
)
modulated_rms_norm_shared = released(
    PACKAGE,
    lambda x, weight, scale, shift: op("ModulatedRMSNorm")(
        x, weight, scale, shift, EPS, 0.0, "gemma", False
    ),
    reference=lambda x, weight, scale, shift: rms(x, weight) * (1 + scale) + shift,
    arguments={"x": _ROWS, "weight": _WIDTH, "scale": _WIDTH, "shift": _WIDTH},
)


def _attn_res(blocks: Tensor, query: Tensor, weight: Tensor) -> Tensor:
    """blocks [N, T, D]: softmax over N of query · rms_norm(block), and the sum weighted by it."""
    scores = (rms(blocks, weight) * query).sum(-1)
    return (scores.softmax(0)[..., None] * blocks).sum(0)


attn_res = released(
    PACKAGE,
    lambda blocks, query, weight: op("AttnRes")(blocks, query, weight, EPS),
    reference=_attn_res,
    arguments={"blocks": Argument("blocks", "tokens", "width"), "query": _WIDTH, "weight": _WIDTH},
    sizes=_TOKENS | {"blocks": lambda sizes: strategies().integers(1, 9)},
)


# ---- projections with their loss, and what is left


def _differ(case: Case) -> bool:
    """Whether the two distributions do: rows that are all alike make both uniform."""
    return any(format_of(case, name) != "expanded" for name in ("weight", "fixed"))


def _fused_linear_jsd(beta: float) -> Any:
    def fn(student: Tensor, weight: Tensor, teacher: Tensor, fixed: Tensor) -> Tensor:
        given = student, weight, teacher.detach(), fixed.detach()
        return op("FusedLinearJSD")(*given, None, beta, IGNORED, 1.0).to(student.dtype)

    def reference(student: Tensor, weight: Tensor, teacher: Tensor, fixed: Tensor) -> Tensor:
        told = F.linear(teacher.detach(), fixed.detach())
        return _mixed(F.linear(student, weight).log_softmax(-1), told.log_softmax(-1), beta)

    return released(
        PACKAGE,
        fn,
        reference=reference,
        arguments={
            "student": Argument("tokens", "hidden"),
            "weight": Argument("vocab", "hidden"),
            "teacher": Argument("tokens", "hidden"),
            "fixed": Argument("vocab", "hidden"),
        },
        sizes=_PROJECTED,
        known=[
            replace(
                _scaled_again,
                code=("second-backward", "race"),  # and liger-jsd-transposed-weight.md
                when=_differ,
            )
        ],
        dtypes=("float32", "bfloat16"),  # in float16 gradients may be zero
        large=False,
    )


fused_linear_jsd = _fused_linear_jsd(0.5)


def _gate_and_up(y: Tensor) -> Tensor:
    gate, up = y.flatten(1).chunk(2, -1)
    return F.silu(gate) * up


swiglu_fused_gate_up = released(
    PACKAGE,
    lambda y: op("FusedGateUpSiLUMul", "swiglu")(y.flatten(1)),
    reference=_gate_and_up,
    arguments={"y": Argument("rows", 2, "width")},
)
embedding = released(
    PACKAGE,
    lambda table, index: op("Embedding")(table, index),
    reference=lambda table, index: table[index],
    arguments={
        "table": Argument("vocab", "hidden"),
        "index": Argument("tokens", integers=(0, "vocab")),
    },
    dtypes=("float32", "float16"),  # atomics, as above
    sizes=_TOKENS
    | {
        "hidden": lambda sizes: strategies().sampled_from([1, 2, 5, 16, 129]),
        "vocab": lambda sizes: strategies().sampled_from([1, 2, 5, 17]),
    },
)


def _multi_token_attention(scores: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Golovneva et al., "Multi-token attention", 2025: a convolution over causal probabilities."""
    causal = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    probabilities = scores.masked_fill(~causal, -torch.inf).softmax(-1)
    mixed = F.conv2d(probabilities, weight, bias, padding=weight.shape[-1] // 2)
    return mixed.masked_fill(~causal, 0)


multi_token_attention = released(
    PACKAGE,
    lambda scores, weight, bias: op("MultiTokenAttention")(
        scores, weight, bias, 1, weight.shape[-1] // 2
    ),
    reference=_multi_token_attention,
    arguments={
        "scores": Argument("batch", "heads", "length", "length"),
        "weight": Argument("mixed", "heads", 3, 3),
        "bias": Argument("mixed"),
    },
    sizes={
        "batch": lambda sizes: strategies().integers(1, 2),
        "heads": lambda sizes: strategies().integers(1, 3),
        "length": lambda sizes: strategies().sampled_from([1, 2, 5, 16, 17]),
        "mixed": lambda sizes: strategies().integers(1, 3),
    },
)
