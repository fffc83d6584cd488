"""Feed-forward layers of liger-kernel: experts in one kernel, and an MLP in tiles."""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fixtures.released.check import released
from fixtures.released.liger import PACKAGE, op, take
from fixtures.released.liger_references import TOKENS, strategies
from tpcheck import Argument, Case, KnownFinding


def _experts(x: Tensor, up: Tensor, down: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    """x [T, H], up [E, 2 I, H], down [E, H, I], index and weights [T, K]."""
    gates, ups = torch.einsum("th,tkih->tki", x, up[index]).chunk(2, -1)
    out = torch.einsum("tki,tkhi->tkh", F.silu(gates) * ups, down[index])
    return (out * weights[..., None]).sum(1)


def _fused_moe(*dtypes: str, gradient: bool) -> Any:
    return released(
        PACKAGE,
        lambda x, up, down, index, weights: op("FusedMoE")(x, up, down, index, weights),
        reference=lambda x, up, down, index, weights: _experts(x, up, down, index.long(), weights),
        arguments={
            "x": Argument("tokens", "hidden", gradient=gradient),
            "up": Argument("experts", "inner_twice", "hidden", gradient=gradient),
            "down": Argument("experts", "hidden", "inner", gradient=gradient),
            "index": Argument("tokens", "chosen", integers=(0, "experts"), dtype="int32"),
            "weights": Argument("tokens", "chosen", gradient=gradient),
        },
        sizes={
            "tokens": lambda sizes: strategies().sampled_from([1, 2, 5, 17]),
            "chosen": lambda sizes: strategies().integers(1, 3),
            "experts": lambda sizes: strategies().integers(1, 5),
            "hidden": lambda sizes: strategies().sampled_from([1, 2, 16, 17]),
            "inner": lambda sizes: strategies().sampled_from([1, 2, 16, 17]),
            "inner_twice": lambda sizes: strategies().just(2 * sizes["inner"]),
        },
        dtypes=dtypes,  # dots of float32 are of tf32
        large=False,
    )


fused_moe = _fused_moe("float16", gradient=True)
fused_moe_forward = _fused_moe("bfloat16", gradient=False)  # backward has bfloat16 atomics


class _Layer(torch.nn.Module):
    """An MLP of given weights."""

    def __init__(self, up: Tensor, down: Tensor) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Parameter(up), torch.nn.Parameter(down)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(F.silu(F.linear(x, self.up)), self.down)


def _in_tiles(layer: _Layer, x: Tensor, tiles: int) -> Tensor:
    """tiles: 0 for as many as the function itself makes."""
    run = take("ops.apply_tiled_mlp")
    return run(lambda module, tile: module(tile), layer, x, tiles or None)


def _tiled_weights(
    x: Tensor, up: Tensor, down: Tensor, dy: Tensor, *, tiles: int, frozen: bool, strided: bool
) -> tuple[Tensor, ...]:
    """What a backward leaves in its weights and its input. A layer after it makes the output
    require gradients."""
    layer = _Layer(up.clone(), down.clone())
    x = (x.mT.contiguous().mT if strided else x.contiguous()).detach()
    x.requires_grad_(not frozen)
    after = torch.ones((), dtype=x.dtype, requires_grad=True)
    with torch.enable_grad():
        y = _in_tiles(layer, x, tiles) * after
    y.backward(dy)
    made = [weight.grad for weight in (layer.up, layer.down)]
    given = [torch.zeros_like(w) if g is None else g for g, w in zip(made, (up, down), strict=True)]
    return (*given, x.grad) if x.grad is not None else tuple(given)


def _weights(
    x: Tensor, up: Tensor, down: Tensor, dy: Tensor, *, tiles: int, frozen: bool
) -> tuple[Tensor, ...]:
    given = [tensor.detach().requires_grad_() for tensor in (up, down, x)]
    with torch.enable_grad():
        y = F.linear(F.silu(F.linear(given[2], given[0])), given[1])
    return torch.autograd.grad(y, given[:2] if frozen else given, dy)


_LAYER = {
    "x": Argument("batch", "tokens", "hidden"),
    "up": Argument("inner", "hidden", gradient=False),
    "down": Argument("hidden", "inner", gradient=False),
}
_TILED = TOKENS | {
    "batch": lambda sizes: strategies().integers(1, 3),
    "hidden": lambda sizes: strategies().sampled_from([1, 2, 5, 16]),
    "inner": lambda sizes: strategies().sampled_from([1, 2, 5, 16]),
}
_TILES = {"tiles": lambda sizes: strategies().sampled_from([0, 1, 2, 3, 7])}


def _missing(case: Case, page: str) -> KnownFinding:
    """A gradient that is zero throughout."""
    return KnownFinding(
        package="liger-kernel",
        releases="==0.8.5",
        code=("unwritten-memory", "shard-order"),
        case=case,
        when=lambda case: True,
        page=f"docs/findings/{page}.md",
    )


tiled_mlp = released(
    PACKAGE,
    lambda x, up, down, *, tiles: _in_tiles(
        _Layer(up.detach(), down.detach()), x.contiguous(), tiles
    ),
    reference=lambda x, up, down, *, tiles: F.linear(F.silu(F.linear(x, up)), down),
    arguments=_LAYER,
    sizes=_TILED,
    options=_TILES,
)


def _tiled_backward(*, frozen: bool = False, strided: bool = False, **options: Any) -> Any:
    """Gradients as outputs: so they are asked for in each case."""
    fixed = Argument("batch", "tokens", "hidden", gradient=False)
    return released(
        PACKAGE,
        partial(_tiled_weights, frozen=frozen, strided=strided),
        reference=partial(_weights, frozen=frozen),
        arguments=_LAYER | {"x": fixed, "dy": fixed},
        options=_TILES,
        gradients=("all",),  # in inference mode nothing asks for one
        **options,
    )


tiled_mlp_weights = _tiled_backward(sizes=_TILED)
tiled_mlp_strided = _tiled_backward(
    strided=True,
    sizes=_TILED
    | {
        "tokens": lambda sizes: strategies().integers(2, 5),
        "hidden": lambda sizes: strategies().sampled_from([2, 5, 16]),
    },
    families=("normal",),
    known=[
        _missing(
            Case(dims={"batch": 1, "hidden": 2, "inner": 1, "tokens": 2, "tiles": 0}),
            "liger-tiled-mlp-strided-input",
        )
    ],
)
tiled_mlp_weights_alone = _tiled_backward(
    frozen=True,
    sizes=_TILED,
    families=("normal",),
    known=[
        _missing(
            Case(dims={"batch": 1, "hidden": 1, "inner": 1, "tokens": 1, "tiles": 0}),
            "liger-tiled-mlp-frozen-input",
        )
    ],
)
