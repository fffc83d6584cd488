"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def replace(path: Path, text: str) -> None:
    """Writes a file in an existing folder: a reader sees the old one or the new one, never half,
    and so does who looks after a power cut.

    Raises:
        OSError: it can't be written; nothing is left behind.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        os.fchmod(handle, 0o644)  # shared, unlike other temporary files
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
