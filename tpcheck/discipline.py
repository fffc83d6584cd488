"""What a kernel is held to besides its values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Kernel:
    """What a kernel is held to besides its values (`tpcheck.kernel_check`).

    Args:
        overwrites: inputs that it may change.
        constants: inputs that take no gradient.
        opcheck: whether ops of `torch.library` go through `torch.library.opcheck`.
        free: sizes that may be any, within what there is room for.
        memory, families, degrees: what its cases may have of these; empty for any.
    """

    overwrites: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()
    opcheck: bool = True
    free: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    degrees: tuple[int, ...] = ()

    def changed(self, inputs: Iterable[str]) -> set[int]:
        """The places of the inputs that it may change."""
        return {i for i, name in enumerate(inputs) if name in self.overwrites}
