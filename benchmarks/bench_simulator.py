"""Frames a second of one person and of 256, and what a frame costs next to this machine's own sgemm, with a history of earlier runs."""

from pathlib import Path

from dropsim.apps.cli.bench import Bench

if __name__ == "__main__":
    Path("out").mkdir(exist_ok=True)
    Bench(quick=True, first_run=False, sweep=True, history=Path("out") / "bench-history.jsonl").run()
