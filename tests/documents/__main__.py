"""Follows pages, and writes what their commands print into them where it is another thing."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.documents import pages
from tests.documents.blocks import blocks
from tests.documents.following import differs, lay_out, run
from tests.documents.samples import rewritten


def refresh(page: Path) -> None:
    """A sample with an ellipsis is shown, and left to be written by hand."""
    text, found = page.read_text(), dict[int, list[str]]()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        lay_out(folder)
        for block in blocks(text):
            if block.file:
                (folder / block.file).write_text(block.text)
            for command in filter(lambda command: command.runs, block.commands):
                code, printed = run(command, folder)
                elided = any(line.endswith("…") for line in command.shown or ())
                for difference in differs(command, code, printed):
                    print(f"{page.name} {difference}\n")
                    if command.shown is not None and not elided:
                        found[command.line] = printed
    if found:
        page.write_text(rewritten(text, found))


for one in [Path(name).resolve() for name in sys.argv[1:]] or pages().values():
    refresh(one)
