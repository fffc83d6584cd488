"""What modes of ours have in common that see each operator."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class Dispatch(TorchDispatchMode):
    """Sees the operators that run while it is entered."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would import its compiler, a second per process, to wrap a class of it
