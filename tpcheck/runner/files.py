"""A case's files: what its ranks read, and what they keep for a second look."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError

from tpcheck.engines.folder import full
from tpcheck.protocol import folders
from tpcheck.protocol.bundle import write_bundle
from tpcheck.protocol.problem import Problem

if TYPE_CHECKING:
    from tpcheck.engines.engine import Engine


@dataclass(frozen=True)
class CaseFiles:
    """Where a case's tensors are.

    Args:
        bundle: the file of its tensors.
        suspects: the folder for ranks' tensors outside their bounds.
        checkpoint: the folder of what the candidate saves.
    """

    bundle: Path
    suspects: Path
    checkpoint: Path


@contextlib.contextmanager
def written(engine: Engine, problems: Sequence[Problem], *, own: bool) -> Iterator[CaseFiles]:
    """The files of a case, in the engine's folder, removed at the end.

    Args:
        own: whether the reference's results in the case's dtype are wanted, too.

    Raises:
        NoRoom: there is no room for them.
    """
    folder = engine.folder
    case = folder / f"case{engine.next_epoch()}"
    ends = (".safetensors", ".suspects", ".checkpoint")
    files = CaseFiles(*(case.with_suffix(end) for end in ends))
    try:
        try:
            files.suspects.mkdir()
            files.checkpoint.mkdir()
            write_bundle(problems, files.bundle, own=own)
        except (OSError, SafetensorError):
            raise full(folder) from None
        yield files
    finally:
        folders.remove(files.bundle)
        folders.remove(files.suspects)
        folders.remove(files.checkpoint)
