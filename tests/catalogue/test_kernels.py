"""Our Triton kernels pass, in every dtype and memory format that is drawn for them, and compile for
a GPU that need not be here.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tpcheck.case import DTYPES
from tpcheck.engines.engine import Engine
from tpcheck.report import as_json
from tpcheck.search.collect import collect
from tpcheck.search.options import Options
from tpcheck.search.search import Search
from tpcheck.verdict import Verdict

CHECKS = {check.title: check for check in collect([str(ROOT / "properties" / "_kernels")])}


#: Of those that differ by what is around the kernels, or are of one kind, one is in each run.
BESIDE = {
    "block_kernels_sp": "block_kernels",
    "mlp_kernels_sp": "block_kernels",
    "cross_entropy_kernels_upcast": "cross_entropy_kernels",
    "layer_norm_kernel": "rms_norm_kernel",
    "swiglu_kernel": "bias_gelu_kernel",
    "residual_kernel": "rms_norm_kernel",
    "all_gather_linear_kernels": "linear_reduce_scatter_kernels",
    "mlp_kernels": "block_kernels",
}


#: The two that models train in; the sweep has all.
EACH_RUN = ("float32", "bfloat16")


@pytest.mark.parametrize(
    "dtypes", [EACH_RUN, pytest.param(DTYPES, marks=pytest.mark.sweep)], ids=["two", "all"]
)
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.sweep if n in BESIDE else ()) for n in CHECKS],
)
def test_a_kernel_passes(gloo: Engine, name: str, dtypes: tuple[str, ...]) -> None:
    # one in each dtype, and at each degree
    options = Options(examples=len(dtypes), seed=7, dtypes=dtypes, corpus=None)
    result = Search(CHECKS[name], gloo, options).run()
    assert result.verdict is Verdict.PASS, as_json.check(result)
    assert result.tp_degrees == ([1] if CHECKS[name].kernel else [2, 4])


def test_what_stands_beside_another_has_one_in_each_run() -> None:
    assert {*BESIDE} <= {*CHECKS} and {*BESIDE.values()} <= {*CHECKS} - {*BESIDE}


# ---- compiled


def kernels() -> Iterator[Any]:
    """Every kernel that is launched: what it calls has no pointers of its own."""
    for file in sorted((ROOT / "fixtures" / "kernels").glob("*.py")):
        home = importlib.import_module(f"fixtures.kernels.{file.stem}")
        for value in vars(home).values():
            kernel = getattr(value, "fn", value) if hasattr(value, "configs") else value
            pointers = any(name.endswith("_ptr") for name in getattr(kernel, "arg_names", ()))
            if pointers and kernel.__module__ == home.__name__:
                yield kernel


#: What launches give for constants; sizes of blocks are 32.
CONSTANTS = {"EPS": 1e-5, "ALPHA": 0.5, "BACK": True, "BIAS": True, "ADDS": True}
#: What is not of the tensors' dtype: statistics, sums of gradients, tables, ids.
FLOAT32 = ("scale", "mean", "largest", "total", "chosen", "log_total", "cos", "sin")


def compiled(kernel: Any, **constants: Any) -> str:
    """A kernel of bfloat16 tensors in the assembler of a Hopper."""
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    constants = {**CONSTANTS, "SUMS": tl.float32, **constants}
    signature, given = {}, {}
    for place, name in enumerate(kernel.arg_names):
        of = name.removesuffix("_ptr")
        if name.isupper():
            signature[name], given[(place,)] = "constexpr", constants.get(name, 32)
        elif of == name:
            signature[name] = "i32"
        else:
            signature[name] = {"target": "*i64"}.get(of, "*fp32" if of in FLOAT32 else "*bf16")
    source = ASTSource(kernel, signature, constexprs=given)
    return str(compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"])


def called(kernel: Any) -> str:
    return f"{kernel.__module__.rpartition('.')[2]}.{kernel.__name__}"


KERNELS = {called(kernel): kernel for kernel in kernels()}


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton's, with a cache of the test's own."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # it warns where nothing is said


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_compiles_for_a_gpu(name: str) -> None:
    assert ".visible .entry" in compiled(KERNELS[name])


@pytest.mark.usefixtures("compiler")
def test_the_twin_what_no_gpu_takes_is_seen() -> None:
    with pytest.raises(Exception, match="Input shapes should have"):
        compiled(KERNELS["gemm._gemm"], BLOCK_K=4)
