"""The command line: only this package prints, parses arguments and sets threads.

A command is a frozen dataclass whose fields are its arguments and whose `run()` does the work, in a module of its own.
It imports heavy libraries inside `run()`, so that `--help` is quick and the thread settings below come before BLAS is
loaded.
"""

import contextlib
import io
import os
import re
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, Any, Union

import tyro

from dropsim.apps.cli.bank import BankCommand, Data
from dropsim.apps.cli.bench import Bench
from dropsim.apps.cli.clean import Clean, Convert
from dropsim.apps.cli.evaluate import Evaluate
from dropsim.apps.cli.info import Info
from dropsim.apps.cli.perturb import Perturb
from dropsim.apps.cli.render import Render
from dropsim.apps.cli.rig import Rig
from dropsim.apps.cli.run import Demo, Run, Scenarios
from dropsim.apps.cli.synthesize import Synthesize
from dropsim.apps.cli.train import Train
from dropsim.apps.cli.view import Live, View
from dropsim.files.names import suggestion

MAKING = (Clean, Convert, Demo, Live, Perturb, Render, Rig, Run, Scenarios, Synthesize, View)
STUDYING = (BankCommand, Bench, Data, Evaluate, Info, Train)
COMMANDS: dict[str, type[Any]] = {
    command.__name__.removesuffix("Command").lower(): command
    for command in sorted((*MAKING, *STUDYING), key=lambda command: command.__name__)
}
"""Every command by the name that is typed; its method run() does the work. A ValueError or OSError becomes one line."""

EXIT_ERROR = 2
EXIT_INTERRUPTED = 130
EXIT_PIPE = 141
SHELLS = ("bash", "zsh", "tcsh", "fish")
"""Those that tyro writes completions for."""
DESCRIPTION = "Gives any human motion model a body that obeys physics. `dropsim COMMAND --help` explains a command."


def main(args: Sequence[str] | None = None) -> int:
    """Parse the arguments, run the command and return the exit code."""
    # Threads of a step are set in dropsim.compute.threads; elsewhere the user's own setting holds.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        arguments = sys.argv[1:] if args is None else args
        if list(arguments[:1]) == ["--version"]:
            print(f"dropsim {version('dropsim')}")
        else:
            _parsed(arguments).run()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of the output, such as `head`, has seen enough; Python's own flush at the end must not complain
        # either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_PIPE
    except (ValueError, OSError, MemoryError) as error:
        if os.environ.get("DROPSIM_DEBUG") == "1":
            raise
        print(f"dropsim: {_sentence(error)}", file=sys.stderr)
        return EXIT_ERROR
    return 0


def _parsed(args: Sequence[str]) -> Any:  # noqa: ANN401, one of the commands
    """Return the command that the arguments ask for; help ends the program here."""
    first = args[0] if args else "--help"
    if first in COMMANDS:
        # Alone, so that a mistyped option is not explained by those of other commands.
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                return tyro.cli(COMMANDS[first], prog=f"dropsim {first}", args=args[1:])
        except SystemExit as end:
            if end.code != EXIT_ERROR:
                raise
            raise ValueError(
                f"{_usage_error(said.getvalue())} (`dropsim {first} --help` explains the options)"
            ) from None
    if first.startswith("--tyro-") and (len(args) < 2 or args[1] not in SHELLS):
        raise ValueError(f"{first}: name a shell, {', '.join(SHELLS)}")
    if not first.startswith("-"):
        raise ValueError(f"there is no command {first!r}: {suggestion(first, COMMANDS)}")
    return tyro.cli(_every_command(), prog="dropsim", description=DESCRIPTION, args=args or [first])


VALUE = r"Error parsing (\S+): (.*) could be instantiated from \[(.*)\]"
WHOLE = r"Error parsing (\S+): invalid literal for int\(\) with base 10: (.*)"
CHOICE = r"(?i)invalid choice ('.*?') for argument '(.*?)'\. Expected one of \((.*?)\)"
"""Errors of tyro that are said in other words."""


def _usage_error(box: str) -> str:
    """Put what tyro says of wrong options, in a box of several lines, into one sentence."""
    lines = [line.strip("│ ") for line in box.splitlines()[1:]]
    text = "\n".join(lines)
    # The first part says what is wrong; tyro's own list of errors only repeats it.
    parts = [part for part in re.split(r"^[─╰╯-]+$", text, flags=re.MULTILINE) if part.strip()]
    said = " ".join(parts[0].partition("Got errors")[0].split()).rstrip(". ") if parts else "the options cannot be read"
    if value := re.fullmatch(VALUE, said):
        kinds = {"INT": "a whole number", "FLOAT": "a number"}
        kind = next((words for kind, words in kinds.items() if kind in value[2]), "possible")
        said = f"{value[1]}: {value[3]} is not {kind}"
    elif number := re.fullmatch(WHOLE, said):
        said = f"{number[1]}: {number[2]} is not a whole number"
    elif choice := re.match(CHOICE, said):
        said = f"there is no {choice[2]} {choice[1]}: use one of {choice[3].replace(chr(39), '').rstrip(',')}"
    said = re.sub(r" \((?:required|applied to .*?)\)| Arguments are applied .*", "", said[:1].lower() + said[1:])
    # A long list goes on in the next lines of the box.
    known = re.search(r"^Available subcommands: ((?:.*,\n)*.*)", text, re.MULTILINE)
    if known:
        return f"{said}: use one of {' '.join(known[1].split())}"
    near = re.findall(r"^--\w[\w-]*", text, re.MULTILINE) if "Perhaps you meant:" in lines else []
    near = [option for option in dict.fromkeys(near) if option not in said][:3]
    return f"{said}: did you mean {' or '.join(near)}?" if near else said


def _every_command() -> Any:  # noqa: ANN401, a union that is made at run time
    """Return the union of all commands, each with the first line of its docstring as its description."""
    each = []
    for name, cls in COMMANDS.items():
        summary = (cls.__doc__ or "").partition("\n")[0]
        each.append(Annotated[cls, tyro.conf.subcommand(name, description=summary, prefix_name=False)])
    return Union[tuple(each)]  # noqa: UP007 - of as many as there are


def _sentence(error: Exception) -> str:
    """Say on one line what went wrong."""
    from dropsim.files.names import printable

    if isinstance(error, OSError) and error.filename is not None and error.strerror is not None:
        return printable(f"{error.filename}: {error.strerror}")
    if isinstance(error, MemoryError):
        return "there is not enough memory for this: ask for fewer people, samples or seconds"
    return printable(" ".join(str(error).split())) or type(error).__name__
