"""The command's first lines: `dropsim`, and `python -m dropsim` where the script is not on the path."""

import sys


def main() -> int:
    """Run the command; whoever presses Ctrl-C while it is still being loaded sees no traceback either."""
    try:
        from dropsim.apps.cli import main as command

        return command()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
