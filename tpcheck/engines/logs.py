"""What a host prints: a pipe that the driver drains, of which only the end is kept."""

from __future__ import annotations

import contextlib
import os
import re

#: Bytes of a host's output that are kept, the last ones. With less, the stacks of a host of many
#: threads are cut; more only costs memory.
KEPT = 1 << 18
#: Bytes that are read in one go: a host that prints without end must not keep the driver from
#: looking at the others.
AT_ONCE = 1 << 20

#: How faulthandler's dump begins, of one thread or of all.
STACKS = re.compile(r"^(Current thread|Thread|Stack) .*\(most recent call first\):", re.MULTILINE)


class Log:
    """The end of what one host printed.

    Args:
        descriptor: of the pipe's end to read from; closed by `close`.
    """

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor: int | None = descriptor
        self._kept = bytearray()
        self.written = 0  # bytes that came so far

    @property
    def descriptor(self) -> int | None:
        """What to wait on; None where no more will come."""
        return self._descriptor

    def read(self) -> None:
        """Takes what is there, without waiting."""
        read = 0
        while self._descriptor is not None and read < AT_ONCE:
            try:
                data = os.read(self._descriptor, 1 << 16)
            except BlockingIOError:
                return
            if not data:
                self.close()
            read += len(data)
            self._keep(data)

    def _keep(self, data: bytes) -> None:
        self._kept += data
        self.written += len(data)
        if len(self._kept) > KEPT:
            del self._kept[:-KEPT]

    def follow(self, earlier: Log) -> None:
        """Begins with what another log has."""
        self._kept[:0] = earlier._kept
        self.written += len(earlier._kept)

    def since(self, written: int) -> str:
        """What came after the first `written` bytes, as far as it is kept."""
        new = self.written - written
        return self._kept[-new:].decode(errors="replace") if new else ""

    def printed(self, written: int, most: int) -> str:
        """The end of what came after the first `written` bytes, without the stacks that the driver
        has asked for."""
        self.read()
        text = self.since(written)
        at = STACKS.search(text)
        return (text[: at.start()] if at else text)[-most:]

    def tail(self, characters: int) -> str:
        """The end of it all."""
        return self._kept.decode(errors="replace")[-characters:].strip()

    def close(self) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):  # a reference may have closed it
                os.close(self._descriptor)
            self._descriptor = None
