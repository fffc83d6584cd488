"""The command line: its verbs, one file each, and what the process ends with.

Verbs import what they need when they run: `--help` loads no torch.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
import traceback
from typing import Annotated, Any, NoReturn

import typer

from tpcheck import __version__
from tpcheck.cli import early, signals
from tpcheck.cli.audit import audit
from tpcheck.cli.bench import bench
from tpcheck.cli.calibrate import calibrate
from tpcheck.cli.doctor import doctor
from tpcheck.cli.fuzz import fuzz
from tpcheck.cli.init import init
from tpcheck.cli.mutants import mutants
from tpcheck.cli.replay import replay
from tpcheck.cli.report import report
from tpcheck.cli.say import say
from tpcheck.cli.streams import can_write_anything, complain, leave
from tpcheck.cli.verify import verify
from tpcheck.engines import launch
from tpcheck.errors import TROUBLE, UNDECIDED, InvalidArgument, NoRoom, Untrusted
from tpcheck.process import exits

app = typer.Typer(
    help="Verifies tensor-parallel PyTorch code against its single-device reference.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for verb in (init, verify, fuzz, replay, report, audit, mutants, doctor, bench):
    app.command()(verb)
app.add_typer(calibrate)


def _version(asked: bool) -> None:
    if asked:
        say(f"tpcheck {__version__}")
        raise typer.Exit


@app.callback()
def common(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="The version.")
    ] = False,
) -> None:
    """What stands before any command."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise InvalidArgument(
            "the working folder is not there any more; change to one that is"
        ) from None
    if context.invoked_subcommand != "verify" and (launcher := launch.launched_by()) is not None:
        raise InvalidArgument(f"{launch.several(launcher)}; run it once, without {launcher}")


def main(arguments: list[str] | None = None) -> None:
    """Entry point: a user's mistake is one line on stderr and exit code 2. A fault of tpcheck's has
    a traceback, and decides nothing."""
    can_write_anything()
    if arguments is None:
        with contextlib.suppress(Exception):  # stderr may have no descriptor
            faulthandler.enable()  # native code of a reference may end this process
    ending = exits.refused(for_good=arguments is None)
    try:
        with ending, signals.heard() as heard, signals.untold():
            try:
                _run(arguments)
            except SystemExit:
                if heard.first is not None:  # typer knows of Ctrl-C alone
                    if not heard.told:
                        early.tell()
                    sys.exit(heard.exit_code)
                raise
    finally:
        if arguments is None:
            signals.end_at_once()


def _run(arguments: list[str] | None) -> None:
    try:
        with signals.as_interrupt():
            code: Any = app(args=arguments, standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except NoRoom as error:
        _refuse(str(error), UNDECIDED)
    except InvalidArgument as error:
        _refuse(str(error))
    except Untrusted as error:
        say(f"UNKNOWN  {error}")
        sys.exit(UNDECIDED)
    except KeyboardInterrupt:
        sys.exit(signals.exit_code())
    except BrokenPipeError:
        leave()
    except SystemExit:
        raise
    except BaseException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # its message is the help, of many lines
            print(error, file=sys.stderr)
            sys.exit(TROUBLE)
        # click's own usage errors (unknown option, missing argument) carry their message
        if hasattr(error, "format_message"):
            _refuse(error.format_message())
        with contextlib.suppress(OSError):
            traceback.print_exc()
        sys.exit(UNDECIDED)


def _refuse(message: str, code: int = TROUBLE) -> NoReturn:
    complain(message)
    sys.exit(code)


if __name__ == "__main__":
    main()
