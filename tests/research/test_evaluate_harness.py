"""The harness: chunks are saved, gone on with, and the same on any number of processes; and the people in them."""

from dataclasses import replace

import numpy as np
import pytest
import threadpoolctl

from dropsim.compute import jit
from dropsim.physics.options import SimulatorOptions
from dropsim.physics.step import DivergedError
from dropsim.priors.cvae import CVAEPrior
from dropsim.research.evaluation import harness
from dropsim.research.evaluation.harness import Body, Chunk, chunks_of, merged, num_diverged, run_chunks, survivors

BODY = Body()


def draw(body, seeds, *, fails=False):
    """Return some random numbers, and the number of threads."""
    if fails:
        raise ValueError("this chunk cannot be run")
    CALLS.extend(seeds)
    numbers = np.random.default_rng(seeds[0]).normal(size=(64, 64))
    threads = [pool["num_threads"] for pool in threadpoolctl.threadpool_info()]
    return {"product": (numbers @ numbers)[None], "threads": np.array(threads)}


def chunk(seed, **options):
    return Chunk(f"draw {seed}", draw, BODY, (seed,), options)


CALLS: list[int] = []


def test_results_are_not_made_twice_also_after_a_failure(tmp_path):
    CALLS.clear()
    with pytest.raises(ValueError, match="draw 2: this chunk cannot be run"):
        run_chunks([chunk(7), chunk(2, fails=True), chunk(3)], tmp_path)
    assert run_chunks([chunk(7)], tmp_path).keys() == {"draw 7"}
    assert CALLS == [7]
    CALLS.clear()
    heard = []
    first = run_chunks([chunk(3), chunk(1)], tmp_path, watch=lambda done, total: heard.append((done, total)))
    assert heard == [(1, 2), (2, 2)]
    # A third one is added: only it has to be run.
    again = run_chunks([chunk(1), chunk(3), chunk(5)], tmp_path)
    assert CALLS == [3, 1, 5]
    np.testing.assert_array_equal(again["draw 3"]["product"], first["draw 3"]["product"])


def test_chunks_of_one_name_are_one_table_in_their_order(tmp_path):
    one, two = (run_chunks([chunk(seed)], tmp_path)[f"draw {seed}"]["product"][0] for seed in (1, 2))
    both = run_chunks(chunks_of("both", draw, BODY, (2, 1), size=1), tmp_path)["both"]["product"]
    np.testing.assert_array_equal(both, (two, one))
    assert [part.people for part in chunks_of("parts", draw, BODY, range(5), size=2)] == [(0, 1), (2, 3), (4,)]
    # A chunk in which everybody diverged only counts.
    lost = {"finished": np.array([False])}
    table = merged([{"finished": np.array([True, False]), "fell": np.array([True])}, lost])
    assert (table["finished"].tolist(), table["fell"].tolist()) == ([True, False, False], [True])
    assert num_diverged([table, lost]) == 3


def test_the_number_of_workers_changes_no_number(tmp_path):
    work = [chunk(i) for i in range(4)]
    alone, together = (run_chunks(work, tmp_path / str(workers), workers=workers) for workers in (1, 2))
    for name, one in alone.items():
        np.testing.assert_array_equal(one["product"], together[name]["product"])
        assert {*one["threads"], *together[name]["threads"]} == {1}


def test_other_code_or_other_work_is_another_result(tmp_path, monkeypatch):
    before = chunk(1).path(tmp_path)
    others = (chunk(2), chunk(1, fails=True), replace(chunk(1), body=BODY.changed(num_samples=3)))
    assert len({before, *(other.path(tmp_path).name.replace("-2-", "-1-") for other in others)}) == 4
    assert chunk(1).path(tmp_path) == before
    # Kernels are named by their hash, which also holds the versions of what compiles them.
    monkeypatch.setattr(jit, "kernel_hash", lambda: "other kernels")
    harness.fingerprint.cache_clear()
    assert chunk(1).path(tmp_path) != before
    monkeypatch.undo()
    harness.fingerprint.cache_clear()
    assert chunk(1).path(tmp_path) == before


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ValueError, match="give another folder"):
            run_chunks([], folder)
    with pytest.raises(ValueError, match="at least 1"):
        run_chunks([], tmp_path, workers=0)


# --- people


def test_people_who_diverge_are_left_out_and_nobody_else():
    def measure(seeds):
        if 13 in seeds:
            raise DivergedError("frame 1: somebody was thrown out of the world", None)
        return {"seed": np.array(seeds)}

    table = survivors([1, 2, 13, 4, 5], measure)
    assert table["finished"].tolist() == [True, True, False, True, True]
    assert table["seed"].tolist() == [1, 2, 4, 5]
    assert {name: values.tolist() for name, values in survivors([13], measure).items()} == {"finished": [False]}


def test_a_body_says_what_it_changes(tmp_path):
    body = Body.of(4)
    other = body.changed(contact=False, kinematic_weight=1.5).simulator()
    assert other.options == replace(body.options, contact=False, kinematic_weight=1.5)
    assert Body.of(4, method="paper").options == SimulatorOptions.of_method("paper", num_samples=4)
    CVAEPrior.shipped().save(tmp_path / "prior.safetensors")
    named = Body.of(4, str(tmp_path / "prior.safetensors"))
    (tmp_path / "prior.safetensors").write_bytes(b"other weights")
    assert Body.of(4, str(tmp_path / "prior.safetensors")) != named
