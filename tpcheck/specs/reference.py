"""The single-device modules that define what a tensor-parallel candidate must compute.

Plain ``nn.Module``s: no process group, no communication, and the arithmetic runs in the dtype
of the parameters. Parameter names are the contract: a candidate has the same ones.

Legend: B batch, S sequence, H hidden, I intermediate, K in_features, N out_features, V vocab,
D head_dim, A query heads, G key/value heads, L layers.
"""

from typing import Literal, Required, TypedDict, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tpcheck.specs.heads import attend, check_heads, merge_heads, rotary, split_heads

Activation = Literal["gelu", "swiglu"]
NormKind = Literal["none", "layer", "rms"]

EPS = 1e-5


class BlockDims(TypedDict, total=False):
    """What a block is made of; ``Stack`` hands it on to each of its blocks."""

    hidden: Required[int]
    heads: Required[int]
    kv_heads: Required[int]
    head_dim: Required[int]
    intermediate: Required[int]
    activation: Activation
    norm: NormKind
    bias: bool
    qk_norm: bool
    rotary: bool
    causal: bool
    dropout: float


def matmul(x: Tensor, weight: Tensor, *, transposed: bool) -> Tensor:
    """x [..., K] → y [..., N]; weight is [N, K], or [K, N] when ``transposed``."""
    return x @ weight if transposed else F.linear(x, weight)


def activate(up: Tensor, gate: Tensor | None) -> Tensor:
    """SwiGLU of [..., I] where there is a gate, tanh-approximated GELU where there is none."""
    return F.gelu(up, approximate="tanh") if gate is None else F.silu(gate) * up


def rms_normalise(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [..., H] · rsqrt(mean(x²) + eps) · weight [H], without an upcast."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


class Linear(nn.Module):
    """x [..., K] → y [..., N]. weight [N, K], or [K, N] when ``transposed``; bias [N].

    Zeros, which a case draws: random ones that nobody reads take as long as its passes.
    """

    bias: nn.Parameter | None

    def __init__(
        self, in_features: int, out_features: int, *, bias: bool = True, transposed: bool = False
    ) -> None:
        super().__init__()
        shape = (in_features, out_features) if transposed else (out_features, in_features)
        self.transposed = transposed
        self.weight = nn.Parameter(torch.zeros(shape))
        self.register_parameter("bias", nn.Parameter(torch.zeros(out_features)) if bias else None)

    def forward(self, x: Tensor) -> Tensor:
        y = matmul(x, self.weight, transposed=self.transposed)
        return y if self.bias is None else y + self.bias


class LayerNorm(nn.Module):
    """x [..., H] → y [..., H]. weight [H], bias [H]."""

    def __init__(self, hidden: int, *, eps: float = EPS) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(1 + 0.1 * torch.randn(hidden))
        self.bias = nn.Parameter(0.1 * torch.randn(hidden))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


class RMSNorm(nn.Module):
    """x [..., H] → y [..., H]. weight [H]."""

    def __init__(self, hidden: int, *, eps: float = EPS) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(1 + 0.1 * torch.randn(hidden))

    def forward(self, x: Tensor) -> Tensor:
        return rms_normalise(x, self.weight, self.eps)


def build_norm(kind: NormKind, hidden: int) -> nn.Module | None:
    """The norm of that kind, or ``None``, under which a module has no ``norm`` parameters."""
    if kind == "none":
        return None
    return LayerNorm(hidden) if kind == "layer" else RMSNorm(hidden)


class Embedding(nn.Module):
    """tokens [B, S] → y [B, S, H]. weight [V, H]; the ``padding_idx`` row gets no gradient."""

    def __init__(self, vocab: int, hidden: int, *, padding_idx: int | None = None) -> None:
        super().__init__()
        self.padding_idx = padding_idx
        self.weight = nn.Parameter(torch.randn(vocab, hidden))

    def forward(self, tokens: Tensor) -> Tensor:
        return F.embedding(tokens, self.weight, self.padding_idx)


class MLP(nn.Module):
    """x [B, S, H] → y [B, S, H]: norm → up (and gate) → activation → down → dropout, plus x if
    residual.

    Parameters: ``norm.*`` unless norm is "none"; ``up.*`` and, for swiglu, ``gate.*`` [I, H];
    ``down.*`` [H, I]; with ``bias`` each of the three has one.
    """

    def __init__(
        self,
        hidden: int,
        intermediate: int,
        *,
        activation: Activation = "gelu",
        norm: NormKind = "none",
        residual: bool = False,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.residual, self.dropout = residual, dropout
        self.norm = build_norm(norm, hidden)
        self.up = Linear(hidden, intermediate, bias=bias)
        self.gate = Linear(hidden, intermediate, bias=bias) if activation == "swiglu" else None
        self.down = Linear(intermediate, hidden, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        h = x if self.norm is None else self.norm(x)
        y: Tensor = self.down(activate(self.up(h), None if self.gate is None else self.gate(h)))
        y = F.dropout(y, self.dropout, self.training)
        return x + y if self.residual else y


class Attention(nn.Module):
    """x [B, S, H] → y [B, S, H]: norm → q, k, v → q/k norm → rotary → attention, whose weights
    are dropped, too → o → dropout, plus x.

    Parameters: ``norm.*`` unless norm is "none"; ``q_proj.*`` [A · D, H]; ``k_proj.*`` and
    ``v_proj.*`` [G · D, H]; ``o_proj.*`` [H, A · D]; with ``qk_norm``, ``q_norm.weight`` and
    ``k_norm.weight`` [D], shared by all heads; with ``bias`` each projection has one.
    """

    def __init__(
        self,
        hidden: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        *,
        bias: bool = False,
        norm: NormKind = "none",
        residual: bool = False,
        qk_norm: bool = False,
        rotary: bool = False,
        causal: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_heads(heads=heads, kv_heads=kv_heads, head_dim=head_dim, rotary=rotary)
        self.head_dim, self.residual, self.rotary, self.causal = head_dim, residual, rotary, causal
        self.dropout = dropout
        self.norm = build_norm(norm, hidden)
        self.q_proj = Linear(hidden, heads * head_dim, bias=bias)
        self.k_proj = Linear(hidden, kv_heads * head_dim, bias=bias)
        self.v_proj = Linear(hidden, kv_heads * head_dim, bias=bias)
        self.q_norm = RMSNorm(head_dim) if qk_norm else None
        self.k_norm = RMSNorm(head_dim) if qk_norm else None
        self.o_proj = Linear(heads * head_dim, hidden, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        h = x if self.norm is None else self.norm(x)
        q = self.prepare(self.q_proj(h), self.q_norm)  # [B, A, S, D]
        k = self.prepare(self.k_proj(h), self.k_norm)  # [B, G, S, D]
        v = split_heads(self.v_proj(h), self.head_dim)  # [B, G, S, D]
        dropout = self.dropout if self.training else 0.0
        y: Tensor = self.o_proj(merge_heads(attend(q, k, v, causal=self.causal, dropout=dropout)))
        y = F.dropout(y, dropout)
        return x + y if self.residual else y

    def prepare(self, projected: Tensor, norm: nn.Module | None) -> Tensor:
        """[B, S, heads · D] → [B, heads, S, D], normalised and rotated where asked."""
        x = split_heads(projected, self.head_dim)
        x = x if norm is None else norm(x)
        return rotary(x, torch.arange(x.shape[2], device=x.device)) if self.rotary else x


class Block(nn.Module):
    """Pre-norm block, x [B, S, H] → y [B, S, H]: ``attention`` then ``mlp``, each with residual."""

    def __init__(
        self,
        hidden: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        intermediate: int,
        *,
        activation: Activation = "swiglu",
        norm: NormKind = "rms",
        bias: bool = False,
        qk_norm: bool = False,
        rotary: bool = True,
        causal: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.attention = Attention(
            hidden,
            heads,
            kv_heads,
            head_dim,
            bias=bias,
            norm=norm,
            residual=True,
            qk_norm=qk_norm,
            rotary=rotary,
            causal=causal,
            dropout=dropout,
        )
        self.mlp = MLP(
            hidden,
            intermediate,
            activation=activation,
            norm=norm,
            residual=True,
            bias=bias,
            dropout=dropout,
        )

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.mlp(self.attention(x))
        return y


class Stack(nn.Module):
    """L blocks one after the other, x [B, S, H] → y [B, S, H]; parameters ``blocks.i.*``."""

    def __init__(self, layers: int, **dims: Unpack[BlockDims]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(**dims) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x
