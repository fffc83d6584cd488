"""What is sent to ranks by name: ops of `torch.library`, what `torch.compile` made, and kernels of
Triton's."""

import importlib
import sys
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
import hypothesis.strategies
import pluggy
import pytest
import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from tpcheck import Argument, Check, kernel_check
from tpcheck.adapters import dtensor
from tpcheck.protocol.pickled import _Home, homes, modules_of, sent
from tpcheck.runner.sent import parts_of

LIBRARY = "tpcheck_sent_ops"


@torch.library.custom_op(f"{LIBRARY}::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    return x * 2


library = torch.library.Library(LIBRARY, "FRAGMENT")
library.define("thrice(Tensor x) -> Tensor")


def plain(x: Tensor) -> Tensor:
    return x * 2


fast = torch.compile(plain, backend="eager")


@triton.jit
def kernel(x: Any) -> None:
    pass


tuned = triton.autotune([triton.Config({})], key=[])(kernel)


def launching(how: Any) -> Any:
    """A function without a name of its own: it is sent by value, with what it launches."""

    def launch(x: Tensor) -> Any:
        return how[(1,)], kernel

    return launch


def differentiable_once() -> Any:
    """A class without a name of its own: what the decorator makes is sent by value with it, and
    knows a module of torch's that Python does not import."""

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, *grads: Tensor) -> Tensor:
            return grads[0] * 2

    return Twice.apply


def check(fn: Any) -> Check:
    return kernel_check(fn, reference=plain, arguments={"x": Argument("n")})


inline = check(torch.compile(plain, backend="eager"))


def again(thing: Any, of: Check | None = None) -> Any:
    return cloudpickle.loads(sent(thing, of or check(plain)))


def test_a_function_that_is_sent_knows_its_file() -> None:
    def outer(x: Any) -> Any:
        return (lambda y: y / 0)(x)

    made = again(outer)
    assert made is not outer and made.__code__ == outer.__code__
    inner = next(c for c in made.__code__.co_consts if hasattr(c, "co_filename"))
    assert made.__code__.co_filename == inner.co_filename == __file__


def test_an_op_is_found_again_by_its_name() -> None:
    packet = torch.ops.tpcheck_sent_ops.thrice
    for op in (twice, packet, packet.default, torch.ops.aten.mul.Tensor):
        assert again({"of": [op]}) == {"of": [op]}
    assert again(partial(twice, 3)).func is twice
    assert again(lambda x: twice(x) + fast(x)).__closure__ is None


def test_a_compiled_function_is_found_again_by_its_variable() -> None:
    assert again(fast) is fast
    assert again(inline.candidate, inline).fn is inline.candidate.fn  # type: ignore[attr-defined]


def test_a_kernel_of_tritons_is_found_again_by_its_variable() -> None:
    assert again(kernel) is kernel and again(tuned) is tuned
    made = again(launching(tuned))
    assert made.__closure__[0].cell_contents is tuned
    assert made.__globals__["kernel"] is kernel


def test_a_kernel_that_is_no_variable_of_a_module_is_refused() -> None:
    @triton.jit
    def inner(x: Any) -> None:
        pass

    for one in (inner, triton.autotune([triton.Config({})], key=[])(inner)):
        with pytest.raises(TypeError, match="the Triton kernel 'inner' is found by its name"):
            again(launching(one))


def test_what_has_no_name_is_refused() -> None:
    nameless = check(torch.compile(plain, backend="eager"))
    with pytest.raises(TypeError, match="assign it in a module"):
        sent(nameless.candidate, nameless)


def test_what_is_registered_in_main_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(twice._init_fn, "__module__", "__main__")
    with pytest.raises(TypeError, match="registered in __main__"):
        sent(twice, check(plain))


# ---- which modules are imported on a rank


def of(thing: Any) -> set[str]:
    return set(modules_of(sent(thing, check(plain))))


def test_modules_are_read_off_what_is_sent() -> None:
    own = plain.__module__
    assert of({"by name": plain, "no module": "pluggy", "of torch": torch.relu}) == {own}
    assert of([twice, fast]) == {own}, "ops and compiled functions are imported by their module"
    assert of([plain, plain, pluggy.PluginManager]) == {own, "pluggy._manager"}
    assert of(hypothesis.strategies) == {"hypothesis.strategies"}
    assert of([1.5, "text", None]) == set()
    assert of([dtensor.candidate, Check]) == {"tpcheck.adapters.dtensor"}


def test_modules_that_a_function_sent_by_value_names_are_read_off_it() -> None:
    inside = cloudpickle.dumps(lambda: (pluggy.PluginManager, hypothesis.strategies.integers))
    assert {"pluggy", "hypothesis"} <= set(modules_of(inside))


def test_what_is_differentiable_once_is_sent_by_value() -> None:
    function = differentiable_once()
    x = torch.ones(3, requires_grad=True)
    cloudpickle.loads(sent(function, check(function)))(x).sum().backward()
    assert torch.equal(x.grad, torch.full((3,), 2.0))


@pytest.mark.parametrize("wrapped", [False, True])
def test_the_file_of_what_is_sent_by_value_runs_first(
    wrapped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one whose imports register an operator that the function finds by its name."""
    (tmp_path / "closing_over.py").write_text(
        "import sys\nsys.registered_here = 'there'\n"
        "def make():\n    def inner(*more):\n        import sys\n"
        "        return sys.registered_here\n    return inner\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "registered_here", "", raising=False)
    made = importlib.import_module("closing_over").make()
    parts = parts_of(check(partial(made, 1) if wrapped else made))
    blob = sent(parts, check(made))
    assert "closing_over" in modules_of(blob)
    monkeypatch.delitem(sys.modules, "closing_over")
    monkeypatch.setattr(sys, "registered_here", "")
    assert cloudpickle.loads(blob)["candidate"].fn() == "there"


def test_a_file_that_can_not_run_elsewhere_is_none_that_has_to() -> None:
    assert homes([plain, None, 1]) == []
    assert cloudpickle.loads(cloudpickle.dumps(_Home("no_such_module_at_all"))) is not None


@pytest.mark.parametrize(
    "says", ["raise ImportError", "raise SystemExit(4)", "import pytest; pytest.skip('no')"]
)
def test_a_home_that_can_not_be_imported_is_left_out(
    says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a test's, which only its runner can import."""
    (tmp_path / "home_that_ends.py").write_text(says)
    monkeypatch.syspath_prepend(tmp_path)
    assert cloudpickle.loads(cloudpickle.dumps(_Home("home_that_ends"))) == "home_that_ends"
    assert "home_that_ends" not in sys.modules
