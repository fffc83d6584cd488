"""A case's files: what its ranks read, and what they keep for a second look."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError

from tpcheck.engines.folder import full
from tpcheck.protocol import folders
from tpcheck.protocol.bundle import write_bundle
from tpcheck.protocol.problem import Problem


@dataclass(frozen=True)
class CaseFiles:
    """Where a case's tensors are.

    Args:
        bundle: the file of its tensors.
        suspects: the folder for ranks' tensors outside their bounds.
    """

    bundle: Path
    suspects: Path


@contextlib.contextmanager
def written(
    folder: Path, epoch: int, problems: Sequence[Problem], *, own: bool
) -> Iterator[CaseFiles]:
    """The files of case number `epoch`, removed at the end.

    Args:
        own: whether the reference's results in the case's dtype are wanted, too.

    Raises:
        NoRoom: there is no room for them.
    """
    files = CaseFiles(folder / f"case{epoch}.safetensors", folder / f"case{epoch}.suspects")
    try:
        try:
            files.suspects.mkdir()
            write_bundle(problems, files.bundle, own=own)
        except (OSError, SafetensorError):
            raise full(folder) from None
        yield files
    finally:
        folders.remove(files.bundle)
        folders.remove(files.suspects)
