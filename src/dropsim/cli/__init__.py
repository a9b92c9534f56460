"""The command line: only this package prints, parses arguments and picks threads.

A command is a frozen dataclass whose fields are its arguments and whose `run()` does the work, in a module of its own. It imports
the heavy libraries inside `run()`, so that `--help` is quick and the thread settings below come before torch.
"""

import os
import sys
from collections.abc import Sequence
from typing import Protocol

import tyro

from dropsim.cli.bench import Bench
from dropsim.cli.clean import Clean
from dropsim.cli.convert import Convert
from dropsim.cli.data import Data
from dropsim.cli.demo import Demo
from dropsim.cli.evaluate import Evaluate
from dropsim.cli.info import Info
from dropsim.cli.perturb import Perturb
from dropsim.cli.render import Render
from dropsim.cli.run import Run
from dropsim.cli.scenarios import Scenarios
from dropsim.cli.synthesize import Synthesize
from dropsim.cli.train import Train
from dropsim.cli.view import View


class Command(Protocol):
    """What every command has."""

    def run(self) -> None:
        """Do the work; a ValueError or OSError raised here becomes one line for the user."""


COMMANDS: dict[str, type[Command]] = {
    "bench": Bench,
    "clean": Clean,
    "convert": Convert,
    "data": Data,
    "demo": Demo,
    "evaluate": Evaluate,
    "info": Info,
    "perturb": Perturb,
    "render": Render,
    "run": Run,
    "scenarios": Scenarios,
    "synthesize": Synthesize,
    "train": Train,
    "view": View,
}
"""Every command by the name that is typed."""

EXIT_ERROR = 2
EXIT_INTERRUPTED = 130


def main(args: Sequence[str] | None = None) -> int:
    """Parse the arguments, run the command and return the exit code."""
    # One thread is as fast as two for one person; what a step runs on, dropsim.threads decides. The user's own setting wins elsewhere.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        tyro.extras.subcommand_cli_from_dict(COMMANDS, prog="dropsim", args=args).run()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except (ValueError, OSError) as error:
        if os.environ.get("DROPSIM_DEBUG") == "1":
            raise
        print(f"dropsim: {_sentence(error)}", file=sys.stderr)
        return EXIT_ERROR
    return 0


def _sentence(error: Exception) -> str:
    """Say on one line what went wrong."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__
