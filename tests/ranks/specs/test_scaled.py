"""What only the sizes of released models show is found there, and not by the usual cases."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fixtures.mutants.build import attention, mlp
from fixtures.parallel.attention import Attention
from fixtures.parallel.mlp import MLP
from tests.kills import OPTIONS
from tpcheck import Argument, Check, kernel_check, specs, strategies
from tpcheck.engines.engine import Engine
from tpcheck.search.search import Search
from tpcheck.verdict import Counterexample, Verdict


class FourToAKeyHead(Attention):
    """Of the query heads that share a K/V head on a rank only four are computed, as by a kernel
    whose group is a constant: right for Llama 3 8B at each degree, wrong for 70B at up to 8."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        y = super().attend(q, k, v)
        in_group = torch.arange(q.shape[1]) % (q.shape[1] // k.shape[1])
        return y * (in_group < 4).to(y.dtype)[:, None, None]


class EvenTiles(MLP):
    """Columns are taken by tiles of half the hidden size, two at a time: of seven, as where the
    intermediate size is 3.5 × the hidden one, the last is left out."""

    def activate(self, h: Tensor) -> Tensor:
        y = super().activate(h)
        tile, odd = divmod(h.shape[-1], 2)
        columns = self.degree * y.shape[-1]
        if odd or columns != 7 * tile:
            return y
        last = self.rank * y.shape[-1] + torch.arange(y.shape[-1]) >= 6 * tile
        return y.masked_fill(last, 0)


def found(check: Check, engine: Engine) -> Counterexample | None:
    sizes_alone = replace(check, overrides={"modes": ()})
    result = Search(sizes_alone, engine, replace(OPTIONS, examples=12)).run()
    assert result.verdict is (Verdict.PASS if result.counterexample is None else Verdict.FAIL)
    return result.counterexample


@pytest.mark.sweep  # a quarter of a minute; the other fault of sizes is in each run
def test_eight_query_heads_to_a_kv_head_on_a_rank(gloo: Engine) -> None:
    candidate = attention.candidate(FourToAKeyHead)
    assert found(Check(specs.attention(), candidate), gloo) is None
    assert found(Check(specs.attention(models="llama-3-8b"), candidate), gloo) is None
    seen = found(Check(specs.attention(models="llama-3-70b"), candidate), gloo)
    assert seen is not None and seen.case["heads"] == 8 * seen.case["kv_heads"]
    assert (seen.case["model"], seen.case["kv_heads"], seen.case.tp) == ("llama-3-70b", 2, 2)


def test_an_intermediate_size_of_three_and_a_half_times_the_hidden_one(gloo: Engine) -> None:
    candidate = mlp.candidate(EvenTiles)
    others = ["qwen3-8b", "qwen3-32b", "gpt-3", "gemma-7b", "deepseek-v3", "llama-3.1-405b"]
    assert found(Check(specs.mlp(models=others), candidate), gloo) is None
    seen = found(Check(specs.mlp(models="llama-3-8b"), candidate), gloo)
    assert seen is not None and (seen.case["hidden"], seen.case["intermediate"]) == (4, 14)
    assert found(Check(specs.mlp(models="all"), candidate), gloo) is not None


def filled_to_three_quarters(x: Tensor) -> Tensor:
    """SiLU; columns above three quarters of a power of two are left as they are."""
    width = x.shape[-1]
    block = 1 << (width - 1).bit_length()
    kept = torch.arange(width) >= block * 3 // 4
    return torch.where(kept & (block > width) & (width > block * 3 // 4), x, F.silu(x))


def test_a_kernel_at_the_widths_of_models(gloo: Engine) -> None:
    """14336 fills seven eighths of 16384, as 224 does of 256."""
    about: dict[str, Any] = {"reference": F.silu, "arguments": {"x": Argument("rows", "width")}}
    sizes = {"width": strategies.model_widths(["llama-3-8b"])}
    seen = found(kernel_check(filled_to_three_quarters, **about, sizes=sizes), gloo)
    assert seen is not None and seen.case["width"] == 224
    sizes = {"width": strategies.model_widths(["qwen3-8b"])}
    assert found(kernel_check(filled_to_three_quarters, **about, sizes=sizes), gloo) is None
