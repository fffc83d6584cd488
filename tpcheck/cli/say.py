"""A text on stdout; above what is live there. Loads rich where it has something to say."""

from __future__ import annotations


def say(text: str) -> None:
    from tpcheck.cli.console import console

    console.print(text)
