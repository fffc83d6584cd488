"""What a page is made of: fenced blocks, the commands in them, sentences."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

#: In a command's comment: it is not run where pages are followed.
LATER = re.compile(r"minute|hour|network|GPU")
#: What changes the environment, or is another test's: checked, and not run.
NOT_RUN = ("pip", "make", "pre-commit", "torchrun", "srun")


@dataclass(frozen=True)
class Command:
    """One shell line.

    Args:
        words: as the shell splits them, without the comment.
        comment: what stands behind `#`.
        shown: what the page says it prints; None where it does not say.
    """

    line: int
    words: tuple[str, ...]
    comment: str = ""
    shown: tuple[str, ...] | None = None

    @property
    def runs(self) -> bool:
        """Whether it is run where pages are followed."""
        return not LATER.search(self.comment) and self.words[0] not in NOT_RUN


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Args:
        line: the line of the page on which its text begins, from 1.
    """

    line: int
    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The file that it is, by its first line."""
        found = re.match(r"# ([\w/]+\.py)\n", self.text)
        return found.group(1) if self.language == "python" and found else None

    @property
    def commands(self) -> list[Command]:
        if self.language == "sh":
            lines = enumerate(self.text.splitlines(), self.line)
            return [_command(n, text) for n, text in lines if text.split("#")[0].strip()]
        return list(_session(self)) if self.language == "console" else []


def _command(line: int, text: str, shown: list[str] | None = None) -> Command:
    words = tuple(shlex.split(text, comments=True))
    comment = text.rpartition(" # ")[2] if " # " in text else ""
    return Command(line, words, comment, None if shown is None else tuple(shown))


def _session(block: Block) -> Iterator[Command]:
    """The commands of a console block, each with what is shown below it."""
    lines = block.text.splitlines()
    starts = [i for i, text in enumerate(lines) if text.startswith("$ ")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        shown = lines[start + 1 : end]
        while shown and not shown[-1].strip():
            shown.pop()
        yield _command(block.line + start, lines[start][2:], shown)


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page, also those inside a list."""
    found: list[Block] = []
    fence = re.compile(r"^( *)```(\S*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
    for match in fence.finditer(text):
        indent, language, body = match.groups()
        line = text.count("\n", 0, match.start()) + 2
        plain = "".join(text.removeprefix(indent) for text in body.splitlines(keepends=True))
        found.append(Block(line, language, plain))
    return found


def prose(text: str) -> str:
    """A page without its blocks; lines stay where they are."""
    return re.sub(
        r"^( *)```.*?^\1```$",
        lambda match: "\n" * match.group().count("\n"),
        text,
        flags=re.MULTILINE | re.DOTALL,
    )


def spans(text: str) -> Iterator[tuple[int, str]]:
    """Code in sentences, with its line."""
    for number, line in enumerate(prose(text).splitlines(), 1):
        for code in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", line):
            yield number, code.replace("\\|", "|").strip()


def runs(text: str) -> bool:
    """Whether a page has anything to run."""
    return any(
        block.language == "python" or any(command.runs for command in block.commands)
        for block in blocks(text)
    )
