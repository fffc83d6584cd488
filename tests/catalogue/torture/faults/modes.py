"""Torch's switches, left as they should not be."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.catalogue.torture.fault import Effect, Here, kind

_kept: list[Any] = []


@kind(Effect.LEAVES)
def grad_mode(here: Here) -> None:
    """Switches gradients off."""
    torch.set_grad_enabled(False)


@kind(Effect.LEAVES)
def inference_mode(here: Here) -> None:
    """Enters inference mode, and never leaves it."""
    mode = torch.inference_mode()
    mode.__enter__()
    _kept.append(mode)  # it ends with the object


@kind(Effect.LEAVES, torch.float16, torch.bfloat16, torch.float64)
def default_dtype(here: Here) -> None:
    """Sets the default dtype."""
    torch.set_default_dtype(here.variant)


@kind(Effect.LEAVES, "meta", "cpu")
def default_device(here: Here) -> None:
    """Sets the default device."""
    torch.set_default_device(here.variant)


@kind(Effect.LEAVES, (False, False), (True, False))
def deterministic_mode(here: Here) -> None:
    """Switches deterministic algorithms off, and the poison with them."""
    on, warn_only = here.variant
    torch.use_deterministic_algorithms(on, warn_only=warn_only)


@kind(Effect.LEAVES)
def poison(here: Here) -> None:
    """Switches the poison of unwritten memory off."""
    torch.utils.deterministic.fill_uninitialized_memory = False


@kind(Effect.LEAVES, torch.bfloat16, torch.float16)
def autocast(here: Here) -> None:
    """Enters autocast, and never leaves it."""
    torch.autocast("cpu", dtype=here.variant).__enter__()


@kind(Effect.LEAVES)
def autocast_cache(here: Here) -> None:
    """Switches autocast's cache."""
    torch.set_autocast_cache_enabled(not torch.is_autocast_cache_enabled())


@kind(Effect.LEAVES, True, False)
def anomaly_mode(here: Here) -> None:
    """Switches anomaly detection on."""
    torch.autograd.set_detect_anomaly(True, check_nan=here.variant)


@kind(Effect.LEAVES, 2, 7)
def number_of_threads(here: Here) -> None:
    """Sets torch's number of threads."""
    torch.set_num_threads(here.variant)


@kind(Effect.LEAVES, "medium", "high")
def matmul_precision(here: Here) -> None:
    """Lowers the precision of float32 products."""
    torch.set_float32_matmul_precision(here.variant)


@kind(Effect.LEAVES, "mkldnn", "nnpack", "cudnn")
def backends(here: Here) -> None:
    """Switches a backend off."""
    getattr(torch.backends, here.variant).set_flags(False)


@kind(Effect.LEAVES, "flash", "math", "mem_efficient")
def attention_backends(here: Here) -> None:
    """Switches a kernel of attention off."""
    getattr(torch.backends.cuda, f"enable_{here.variant}_sdp")(False)


@kind(Effect.LEAVES)
def denormals(here: Here) -> None:
    """Has the processor flush denormal numbers to zero."""
    torch.set_flush_denormal(True)


@kind(Effect.LEAVES)
def threads_of_autograd(here: Here) -> None:
    """Keeps autograd in one thread."""
    torch.autograd.set_multithreading_enabled(False)


class _Doubles(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is torch.nn.functional.linear else result


class _Zeroes(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return torch.zeros_like(result) if func is torch.ops.aten.empty.memory_format else result


@kind(Effect.LEAVES)
def function_mode(here: Here) -> None:
    """Enters a `TorchFunctionMode` that doubles what `F.linear` gives."""
    _Doubles().__enter__()


@kind(Effect.LEAVES)
def dispatch_mode(here: Here) -> None:
    """Enters a `TorchDispatchMode` that writes new memory."""
    _Zeroes().__enter__()


@kind(Effect.LEAVES)
def function_overrides_off(here: Here) -> None:
    """Switches `__torch_function__` off, and never on again."""
    guard = torch._C.DisableTorchFunction()
    guard.__enter__()
    _kept.append(guard)


@kind(Effect.LEAVES)
def forward_mode_level(here: Here) -> None:
    """Enters a level of forward-mode differentiation."""
    forward_ad.enter_dual_level()


@kind(Effect.LEAVES)
def seeds(here: Here) -> None:
    """Seeds every generator."""
    import random

    import numpy as np

    torch.manual_seed(7)
    random.seed(7)
    np.random.seed(7)


@kind(Effect.LEAVES)
def warnings_always(here: Here) -> None:
    """Has torch warn each time."""
    torch.set_warn_always(True)


@kind(Effect.LEAVES)
def printing(here: Here) -> None:
    """Changes how tensors are printed."""
    torch.set_printoptions(precision=0, threshold=1, sci_mode=True)


@kind(Effect.LEAVES)
def default_generator(here: Here) -> None:
    """Replaces torch's generator."""
    torch.default_generator = torch.Generator()


@kind(Effect.LEAVES)
def swapped_tensors(here: Here) -> None:
    """Changes how modules are converted and loaded."""
    torch.__future__.set_swap_module_params_on_conversion(True)
    torch.__future__.set_overwrite_module_params_on_conversion(True)


@kind(Effect.LEAVES, True)
def checked_assertions(here: Here) -> None:
    """Switches checks of distributions and of sparse tensors on."""
    torch.distributions.Distribution.set_default_validate_args(False)
    torch.sparse.check_sparse_tensor_invariants.enable()


@kind(Effect.LEAVES)
def view_replay(here: Here) -> None:
    """Has autograd replay views."""
    torch._C._set_view_replay_enabled(True)


@kind(Effect.LEAVES, "_AutoDispatchBelowAutograd", "_DisableFuncTorch")
def dispatch_keys(here: Here) -> None:
    """Leaves out dispatch keys, those of autograd say."""
    _kept.append(getattr(torch._C, here.variant)())
