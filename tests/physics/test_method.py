"""The paper's method as a preset: the page of deviations names every option of it, and it runs as the paper says."""

import re
from pathlib import Path

import numpy as np
import pytest

from dropsim import Person, Scene, Simulator, SimulatorOptions, World
from dropsim.body.skeleton import Skeleton
from dropsim.compute.random import Streams
from dropsim.physics.contact import Plane, solids
from dropsim.physics.energies import Contact, RangeOfMotion, Rigidity
from dropsim.physics.energy import Frame
from dropsim.physics.options import METHODS
from dropsim.physics.step import StepInputs
from dropsim.priors.cvae import CVAENetwork, CVAEPrior, CVAEShape
from dropsim.priors.motion_field import MotionField
from dropsim.priors.pose import PosePrior
from dropsim.scene import Follow, Push
from dropsim.scene.files import Setup, changed, read_scene

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"


def test_the_page_has_a_line_for_every_option_of_the_preset():
    deviations = PAGE.read_text().partition("## Where we deviate from the paper")[2]
    sentences = re.findall(r"Paper:((?:\s+`\w+ = [\w.]+`,?)+)", deviations)
    named = [pair for sentence in sentences for pair in re.findall(r"`(\w+) = ([\w.]+)`", sentence)]
    assert len(named) == len(dict(named)), "an option is named twice"
    assert dict(named) == {name: str(value).lower() for name, value in METHODS["paper"].items()}
    usual = SimulatorOptions()
    assert all(getattr(usual, name) != value for name, value in METHODS["paper"].items())


def test_scene_files_and_changes_know_the_method(tmp_path):
    path = tmp_path / "scene.toml"
    path.write_text('[simulator]\nmethod = "paper"\nreact = true\n')
    assert read_scene(path).simulator == SimulatorOptions.of_method("paper", react=True)
    changes = [("simulator.method", "paper"), ("simulator.num_samples", "16")]
    assert changed(Setup(), changes).simulator == SimulatorOptions.of_method("paper", num_samples=16)
    back = changed(Setup(simulator=SimulatorOptions.of_method("paper")), [("simulator.method", "default")])
    assert back.simulator == SimulatorOptions()
    with pytest.raises(ValueError, match="did you mean 'paper'"):
        changed(Setup(), [("simulator.method", "papr")])


@pytest.fixture(scope="module")
def learned():
    """A prior of HuMoR's kind with small random weights."""
    network = CVAENetwork.random(CVAEShape(latent=4, decoder=(16,), prior=(16,), groups=4))
    return CVAEPrior(network, Skeleton.adult())


def _frame(skeleton, x, before):
    q = np.broadcast_to(np.eye(3), (*x.shape, 3)).copy()
    return Frame(skeleton, 1 / 30, before, x, q, x[:, None], solids((Plane.ground(),), (len(x),)))


def test_contacts_stick_and_the_whole_body_goes_into_range():
    skeleton = Skeleton.adult()
    before = skeleton.rest[None] + (0.0, 0.0, 1.0)
    x = before - (0.3, 0.0, before[..., 2].min() + 0.05)  # slides by 30 cm while it sinks in
    frame = _frame(skeleton, x, before)
    target = Contact(friction=np.inf).project(x, frame)
    inside = np.asarray(target.active)
    assert inside.any()
    # x_c is x_t moved along the normal: nothing changes along the ground.
    assert np.abs(target.p - before)[inside][:, :2].max() < 1e-12
    assert np.allclose(target.p[inside][:, 2], np.broadcast_to(skeleton.radii, inside.shape)[inside])
    pose = PosePrior(PosePrior.shipped().network, limit=0.1)
    energy = RangeOfMotion(pose, gentle=False)
    assert (energy.matrix(skeleton) == np.eye(22)).all()
    q = skeleton.inverse(x, frame.twists)
    assert np.allclose(energy.project(x, frame).p, skeleton.forward(pose.scaled_back(q), x[:, 0]))
    assert len(Rigidity(braces=False).matrix(skeleton)) == 21


@pytest.mark.parametrize("prior", ["field", "learned"])
def test_nothing_but_the_solve_and_the_correction_moves_people(prior, learned):
    prior = MotionField.shipped() if prior == "field" else learned
    simulator = Simulator(prior, options=SimulatorOptions.of_method("paper"))
    assert np.ptp(simulator.skeleton.masses) == 0
    assert not isinstance(simulator.prior, MotionField) or simulator.prior.reaction == 0
    scene = Scene((Person("walk", speed=0.0),), (Push("torso", (200.0, 0.0, 0.0), 0.1, 0.2), Follow()))
    world = World(scene, simulator)
    now, rng = world.start([0, 1]), world.streams([0, 1])
    heard = []

    def propose(state, num, rng, intent=None, *, propose=simulator.prior.propose):
        heard.append(intent)
        return propose(state, num, rng, intent)

    object.__setattr__(simulator.prior, "propose", propose)
    try:
        for _ in range(8):
            now, _ = world.step(now, rng)
    finally:
        object.__delattr__(simulator.prior, "propose")
    assert heard == [None] * 8
    assert (now.plan, now.rising, now.places, now.crouch) == (None,) * 4
    assert simulator.skeleton.bone_error(now.people.x).max() > 1e-3  # no projection of lengths


def test_momentum_is_literal():
    # Without a say of the prior and of contact, y = x + h v + h^2 (f / m + g) is where everybody goes.
    options = SimulatorOptions.of_method(
        "paper", kinematic=False, contact=False, range_of_motion=False, correct=False, rigidity_weight=0.0
    )
    simulator = Simulator(MotionField.shipped(), options=options)
    state, h = simulator.prior.start("walk", 0), 1 / 30
    forces = np.zeros((22, 3))
    forces[9] = (50.0, 0.0, 0.0)
    after, _ = simulator.step(state, StepInputs(forces=forces, colliders=(Plane.ground(),)), Streams(0))
    y = state.x + h * state.v + h**2 * (forces / simulator.skeleton.masses[:, None] + np.array([0.0, 0.0, -9.81]))
    assert np.abs(after.x - y).max() < 1e-9
