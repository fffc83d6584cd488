"""The console of rich, for texts and what is live. Loaded when something is printed."""

from __future__ import annotations

from typing import Any

from rich.console import Console as RichConsole

from tpcheck.cli.streams import complain, let_go_of_stdout
from tpcheck.report.visible import visible


class Console(RichConsole):
    """Rich's console for texts of others: no `[markup]` and no `:emoji:` in them is ours, escape
    sequences are spelled out, and a stdout that is closed or full is said once."""

    def __init__(self, **more: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **more)

    def print(self, *objects: Any, **more: Any) -> None:
        shown = [visible(text) if isinstance(text, str) else text for text in objects]
        try:
            super().print(*shown, **more)
        except (OSError, ValueError) as error:  # a full disk; a file that was closed
            self._fall_silent()
            complain(f"can't write to stdout ({error}): the exit code is the verdict's")

    def on_broken_pipe(self) -> None:
        """The reader has gone (`| head -1`), and knows that it has."""
        self._fall_silent()

    def _fall_silent(self) -> None:
        self.quiet = True
        let_go_of_stdout()


console = Console(soft_wrap=True)
