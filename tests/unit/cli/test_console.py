"""What a user's code says is printed as it is: it is no markup of ours."""

from __future__ import annotations

import pytest

from tpcheck.cli.console import console


@pytest.mark.parametrize("text", ["expected [seq, batch]", "[/bold]", "[red]x[/red]", ":key:"])
def test_brackets_and_colons_are_printed_as_they_are(text: str) -> None:
    with console.capture() as printed:
        console.print(text)
    assert printed.get() == f"{text}\n"
