"""Torch's switches: modes of a thread, defaults of the process.

What a release of torch does not have is left out.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.modules import module as modules
from torch.overrides import _get_current_function_mode_stack
from torch.utils import _device
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from tpcheck.errors import InvalidArgument
from tpcheck.process.aspects import Aspect

#: What autocast has a switch and a dtype for, of what ranks run on.
_DEVICES = ("cpu", "cuda")


def _switch(name: str, read: str, write: str, *, of_thread: bool = False) -> Iterator[Aspect]:
    """A getter and a setter of `torch._C` or `torch`, where both are there."""
    getter = getattr(torch._C, read, None) or getattr(torch, read, None)
    setter = getattr(torch._C, write, None) or getattr(torch, write, None)
    if getter is not None and setter is not None:
        yield Aspect(name, getter, setter, of_thread)


def _autocast(device: str) -> Iterator[Aspect]:
    def read() -> tuple[bool, torch.dtype]:
        return torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)

    def write(value: tuple[bool, torch.dtype]) -> None:
        torch.set_autocast_enabled(device, value[0])
        torch.set_autocast_dtype(device, value[1])

    yield Aspect(f"torch.is_autocast_enabled({device!r})", read, write, of_thread=True)


@contextlib.contextmanager
def usual() -> Iterator[None]:
    """Modes in which code computes that has entered none, whatever its caller has: gradients are
    taken, nothing is cast, and what autograd saves is as it is.

    Raises:
        InvalidArgument: the caller has a mode through which all operators go.
    """
    modes = [*_get_current_dispatch_mode_stack(), *_get_current_function_mode_stack()]
    kinds = [type(m).__name__ for m in modes if not isinstance(m, _device.DeviceContext)]
    if kinds:
        raise InvalidArgument(
            f"verify() was called inside of {', '.join(kinds)}, through which the reference would "
            "run, and no rank: call it outside"
        )
    casts = [aspect for device in _DEVICES for aspect in _autocast(device)]
    before = [aspect.read() for aspect in casts]
    hooks = []
    with torch.inference_mode(False), torch.enable_grad():
        try:
            for device in _DEVICES:
                torch.set_autocast_enabled(device, False)
            while (top := _saved_tensor_hooks()) is not None:
                torch._C._autograd._pop_saved_tensors_default_hooks()
                hooks.append(top)
            yield
        finally:
            for top in reversed(hooks):
                torch._C._autograd._push_saved_tensors_default_hooks(*top)
            for aspect, value in zip(casts, before, strict=True):
                if aspect.write is not None:
                    aspect.write(value)


def _deterministic() -> tuple[bool, bool]:
    return (
        torch._C._get_deterministic_algorithms(),
        torch._C._get_deterministic_algorithms_warn_only(),
    )


def _set_deterministic(value: tuple[bool, bool]) -> None:
    # set directly: `torch.use_deterministic_algorithms` loads the compiler
    torch._C._set_deterministic_algorithms(value[0], warn_only=value[1])


def _default_device() -> Any:
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return context.device if isinstance(context, _device.DeviceContext) else None


def _function_modes() -> int:
    """How many are entered, besides the one that is the default device."""
    return torch._C._len_torch_function_stack() - (_default_device() is not None)


def _saved_tensor_hooks() -> Any:
    return torch._C._autograd._top_saved_tensors_default_hooks(True)


def _pop_saved_tensor_hooks(top: Any) -> None:
    while _saved_tensor_hooks() != top:
        torch._C._autograd._pop_saved_tensors_default_hooks()


#: Dispatch keys that come and go with what other aspects are about.
_OF_OTHERS = ("Autocast", "Python", "PreDispatch", "ADInplaceOrView")


@functools.cache
def _keys_of_others() -> int:
    keys = torch._C.DispatchKey.__members__.items()
    own = [key for name, key in keys if name.startswith(_OF_OTHERS)]
    return functools.reduce(int.__or__, (torch._C.DispatchKeySet(key).raw_repr() for key in own))


def _dispatch_keys() -> tuple[int, int]:
    """Those that this thread includes, and leaves out: without Autograd's nothing has a graph."""
    others = ~_keys_of_others()
    included = torch._C._dispatch_tls_local_include_set().raw_repr() & others
    return included, torch._C._dispatch_tls_local_exclude_set().raw_repr() & others


def of_torch() -> list[Aspect]:
    """The switches of the torch that is installed."""
    thread = {"of_thread": True}
    found = [
        *_switch("torch.is_grad_enabled", "is_grad_enabled", "_set_grad_enabled", **thread),
        Aspect("torch.is_inference_mode_enabled", torch.is_inference_mode_enabled, None, True),
        *(aspect for device in _DEVICES for aspect in _autocast(device)),
        *_switch(
            "torch.is_autocast_cache_enabled",
            "is_autocast_cache_enabled",
            "set_autocast_cache_enabled",
            **thread,
        ),
        *_switch(
            "torch.autograd.is_multithreading_enabled",
            "_is_multithreading_enabled",
            "_set_multithreading_enabled",
            **thread,
        ),
        # a mode that was entered and never left
        Aspect("a TorchFunctionMode", _function_modes, None, True),
        Aspect("a TorchDispatchMode", torch._C._len_torch_dispatch_stack, None, True),
        Aspect("a guard of dispatch keys", _dispatch_keys, None, True),
        Aspect("torch._C.DisableTorchFunction", torch._C._is_torch_function_enabled, None, True),
        Aspect("torch.get_default_device", _default_device, torch.set_default_device, True),
        Aspect(
            "torch.autograd.graph.saved_tensors_hooks",
            _saved_tensor_hooks,
            _pop_saved_tensor_hooks,
            True,
        ),
        *_switch("torch.get_default_dtype", "get_default_dtype", "set_default_dtype"),
        Aspect("torch.use_deterministic_algorithms", _deterministic, _set_deterministic),
        *_switch(
            "torch.utils.deterministic.fill_uninitialized_memory",
            "_get_deterministic_fill_uninitialized_memory",
            "_set_deterministic_fill_uninitialized_memory",
        ),
        Aspect(
            "torch.autograd.set_detect_anomaly",
            lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
            lambda value: torch.autograd.set_detect_anomaly(*value),
        ),
        *_switch("torch.get_num_threads", "get_num_threads", "set_num_threads"),
        *_switch(
            "torch.get_float32_matmul_precision",
            "get_float32_matmul_precision",
            "set_float32_matmul_precision",
        ),
        *_backends(),
        # no getter: what the processor does with the smallest number says it
        Aspect(
            "torch.set_flush_denormal",
            lambda: sys.float_info.min / 2 == 0.0,
            torch.set_flush_denormal,
            True,
        ),
        *_hooks(),
    ]
    return found


#: Which kernels torch may take, and how exact they are: `torch.backends.…`, getter, setter.
_BACKENDS = (
    ("mkldnn.enabled", "_get_mkldnn_enabled", "_set_mkldnn_enabled"),
    ("nnpack.enabled", "_get_nnpack_enabled", "_set_nnpack_enabled"),
    ("cudnn.enabled", "_get_cudnn_enabled", "_set_cudnn_enabled"),
    ("cudnn.benchmark", "_get_cudnn_benchmark", "_set_cudnn_benchmark"),
    ("cudnn.deterministic", "_get_cudnn_deterministic", "_set_cudnn_deterministic"),
    ("cudnn.allow_tf32", "_get_cudnn_allow_tf32", "_set_cudnn_allow_tf32"),
    ("cuda.enable_flash_sdp", "_get_flash_sdp_enabled", "_set_sdp_use_flash"),
    (
        "cuda.enable_mem_efficient_sdp",
        "_get_mem_efficient_sdp_enabled",
        "_set_sdp_use_mem_efficient",
    ),
    ("cuda.enable_math_sdp", "_get_math_sdp_enabled", "_set_sdp_use_math"),
    ("cuda.enable_cudnn_sdp", "_get_cudnn_sdp_enabled", "_set_sdp_use_cudnn"),
)


def _backends() -> Iterator[Aspect]:
    for name, read, write in _BACKENDS:
        yield from _switch(f"torch.backends.{name}", read, write)


def _hooks() -> Iterator[Aspect]:
    """Hooks on every module, and on every optimizer: dicts that are registered in."""
    for place in (modules.__name__, "torch.optim.optimizer"):
        if place in sys.modules:
            for name in _hooks_of(place):
                held = getattr(sys.modules[place], name)
                yield Aspect(f"{place}.{name}", held.copy, _refill(held))


@functools.cache
def _hooks_of(place: str) -> tuple[str, ...]:
    """Their names, read once for all processes that are forked from this one."""
    held = vars(sys.modules[place]).items()
    return tuple(n for n, value in held if n.startswith("_global_") and isinstance(value, dict))


def _refill(held: dict[Any, Any]) -> Callable[[Any], object]:
    def write(value: dict[Any, Any]) -> None:
        held.clear()
        held.update(value)

    return write
