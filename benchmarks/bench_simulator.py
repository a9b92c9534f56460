"""Frames a second of one person and of 256, next to the floor; `dropsim bench` measures every size."""

from dropsim.apps.cli.bench import Bench

if __name__ == "__main__":
    Bench(quick=True, first_run=False).run()
