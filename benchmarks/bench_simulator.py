"""Frames a second of one person and of 256."""

from dropsim.apps.cli.bench import Bench

if __name__ == "__main__":
    Bench(quick=True, first_run=False).run()
