"""The sizes of released models, as their authors publish them.

    tpcheck.Check(specs.attention(models="llama-3-70b"), candidate=build)

The ready specs scale them down with their ratios kept (`specs/scaled.py`). Whoever verifies a model
that is not here gives a `Model` of their own in the place of a name.

Each figure is that of the release: of the `config.json` beside the weights for Llama 3 and 3.1
(Meta), Qwen3 (Qwen team), Gemma (Google), Falcon (TII) and DeepSeek-V3 (DeepSeek); of table 2.1 and
section 2.1 of Brown et al., "Language Models are Few-Shot Learners" (2020), for GPT-3, whose
vocabulary and tied embedding are those of GPT-2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tpcheck.errors import InvalidArgument, did_you_mean, shown
from tpcheck.given import A_NAME, demand, is_amount, is_name, is_whole

NORMS = ("layer", "rms")
#: Those with "glu" have a gate beside `up`. "gelu" is the exact one, "gelu_tanh" its approximation.
ACTIVATIONS = ("gelu", "gelu_tanh", "swiglu", "geglu")


@dataclass(frozen=True)
class Experts:
    """The experts that stand in the place of the MLP.

    Args:
        count: how many there are; `chosen` of them see a token.
        shared: how many see every token besides.
        width: of each: its `intermediate`.
        dense_layers: how many layers, the first ones, have an MLP instead.
    """

    count: int
    chosen: int
    width: int
    shared: int = 0
    dense_layers: int = 0

    def __post_init__(self) -> None:
        for name in ("count", "chosen", "width"):
            demand(self, name, is_whole(getattr(self, name), 1), "a positive number")
        for name in ("shared", "dense_layers"):
            demand(self, name, is_whole(getattr(self, name)), "a number of at least 0")


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention: q, k and v come from vectors of a lower rank.

    Args:
        q_rank, kv_rank: sizes of these vectors.
        rotated: dims of a q or k head that are rotated, beside its `head_dim`.
    """

    q_rank: int
    kv_rank: int
    rotated: int

    def __post_init__(self) -> None:
        for name in ("q_rank", "kv_rank", "rotated"):
            demand(self, name, is_whole(getattr(self, name), 1), "a positive number")


@dataclass(frozen=True, kw_only=True)
class Model:
    """A decoder-only transformer, by its sizes.

    Args:
        name: by which `models=` asks for it.
        hidden, intermediate, vocab, layers: sizes. `intermediate` is that of the MLP.
        heads, kv_heads, head_dim: `heads * head_dim` need not be `hidden`.
        norm: one of `NORMS`.
        activation: one of `ACTIVATIONS`.
        bias: whether the projections have one.
        qk_norm: whether each head's q and k are normalised.
        rotary: the base of the rotary embedding; None without one.
        tied: whether the output head is the embedding.
        parallel: whether attention and MLP stand side by side, and not one after the other.
        experts: in the place of the MLP, in some layers or all.
        latent: how q, k and v are projected, where that is not from the hidden state.
    """

    name: str
    hidden: int
    intermediate: int
    vocab: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    norm: str = "rms"
    activation: str = "swiglu"
    bias: bool = False
    qk_norm: bool = False
    rotary: float | None = 10_000.0
    tied: bool = False
    parallel: bool = False
    experts: Experts | None = None
    latent: Latent | None = None

    def __post_init__(self) -> None:
        demand(self, "name", is_name(self.name), A_NAME)
        for name in ("hidden", "intermediate", "vocab", "layers", "heads", "kv_heads", "head_dim"):
            demand(self, name, is_whole(getattr(self, name), 1), "a positive number")
        divides = self.heads % self.kv_heads == 0
        demand(self, "kv_heads", divides, f"a divisor of heads={shown(self.heads)}")
        demand(self, "norm", self.norm in NORMS, f"one of {', '.join(NORMS)}")
        known = self.activation in ACTIVATIONS
        demand(self, "activation", known, f"one of {', '.join(ACTIVATIONS)}")
        for name in ("bias", "qk_norm", "tied", "parallel"):
            demand(self, name, isinstance(getattr(self, name), bool), "True or False")
        base = self.rotary is None or is_amount(self.rotary)
        demand(self, "rotary", base, "a positive number, or None")
        experts = self.experts is None or isinstance(self.experts, Experts)
        demand(self, "experts", experts, "Experts, or None")
        latent = self.latent is None or isinstance(self.latent, Latent)
        demand(self, "latent", latent, "a Latent, or None")

    @property
    def gated(self) -> bool:
        """Whether the MLP has a gate."""
        return self.activation.endswith("glu")

    @property
    def widths(self) -> tuple[int, ...]:
        """Intermediate sizes that layers have: of the MLP, and of an expert."""
        if self.experts is None:
            return (self.intermediate,)
        return (self.intermediate,) * bool(self.experts.dense_layers) + (self.experts.width,)


def _released() -> Iterator[Model]:
    yield from _llama_3()
    yield from _qwen_3()
    yield from _gemma()
    yield from _falcon()
    yield Model(
        name="gpt-3", hidden=12288, intermediate=49152, vocab=50257, layers=96, heads=96,
        kv_heads=96, head_dim=128, norm="layer", activation="gelu_tanh", bias=True, rotary=None,
        tied=True,
    )  # fmt: skip
    yield Model(
        name="deepseek-v3", hidden=7168, intermediate=18432, vocab=129280, layers=61, heads=128,
        kv_heads=128, head_dim=128, latent=Latent(q_rank=1536, kv_rank=512, rotated=64),
        experts=Experts(count=256, chosen=8, width=2048, shared=1, dense_layers=3),
    )  # fmt: skip


def _llama_3() -> Iterator[Model]:
    def llama(name: str, hidden: int, intermediate: int, layers: int, heads: int) -> Model:
        return Model(
            name=name, hidden=hidden, intermediate=intermediate, vocab=128256, layers=layers,
            heads=heads, kv_heads=8, head_dim=128, rotary=500_000.0,
        )  # fmt: skip

    yield llama("llama-3-8b", 4096, 14336, 32, 32)
    yield llama("llama-3-70b", 8192, 28672, 80, 64)
    yield llama("llama-3.1-405b", 16384, 53248, 126, 128)


def _qwen_3() -> Iterator[Model]:
    yield Model(
        name="qwen3-8b", hidden=4096, intermediate=12288, vocab=151936, layers=36, heads=32,
        kv_heads=8, head_dim=128, qk_norm=True, rotary=1_000_000.0,
    )  # fmt: skip
    yield Model(
        name="qwen3-32b", hidden=5120, intermediate=25600, vocab=151936, layers=64, heads=64,
        kv_heads=8, head_dim=128, qk_norm=True, rotary=1_000_000.0,
    )  # fmt: skip
    yield Model(
        name="qwen3-30b-a3b", hidden=2048, intermediate=6144, vocab=151936, layers=48, heads=32,
        kv_heads=4, head_dim=128, qk_norm=True, rotary=1_000_000.0,
        experts=Experts(count=128, chosen=8, width=768),
    )  # fmt: skip


def _gemma() -> Iterator[Model]:
    yield Model(
        name="gemma-2b", hidden=2048, intermediate=16384, vocab=256000, layers=18, heads=8,
        kv_heads=1, head_dim=256, activation="geglu", tied=True,
    )  # fmt: skip
    yield Model(
        name="gemma-7b", hidden=3072, intermediate=24576, vocab=256000, layers=28, heads=16,
        kv_heads=16, head_dim=256, activation="geglu", tied=True,
    )  # fmt: skip


def _falcon() -> Iterator[Model]:
    yield Model(
        name="falcon-7b", hidden=4544, intermediate=18176, vocab=65024, layers=32, heads=71,
        kv_heads=1, head_dim=64, norm="layer", activation="gelu", tied=True, parallel=True,
    )  # fmt: skip
    yield Model(
        name="falcon-40b", hidden=8192, intermediate=32768, vocab=65024, layers=60, heads=128,
        kv_heads=8, head_dim=64, norm="layer", activation="gelu", tied=True, parallel=True,
    )  # fmt: skip


#: Name → model.
MODELS = {model.name: model for model in _released()}
ALL = "all"
#: As users give them: "all", a name, a model, or several.
Models = str | Model | Sequence[str | Model]


def chosen(models: Models) -> tuple[Model, ...]:
    """The models that are meant.

    Raises:
        InvalidArgument: there is none of that name, or something else is given.
    """
    if isinstance(models, str) and models == ALL:
        return tuple(MODELS.values())
    given = [models] if isinstance(models, (str, Model)) else models
    if not isinstance(given, (list, tuple)):
        raise InvalidArgument(f"models={shown(models)}: give names of models, or {ALL!r}")
    return tuple(_model(one) for one in given)


def _model(given: object) -> Model:
    if isinstance(given, Model):
        return given
    if isinstance(given, str) and given in MODELS:
        return MODELS[given]
    hint = did_you_mean(given[:80], MODELS) if isinstance(given, str) else ""
    raise InvalidArgument(f"models: there is no model {shown(given)}{hint}")
