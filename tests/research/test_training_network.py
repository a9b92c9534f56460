"""The torch copies that training differentiates against the numpy code that runs, weights there and back, and a package without torch."""

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import dropsim
from dropsim.body import rotations, skeleton
from dropsim.body.skeleton import NUM_JOINTS, Skeleton
from dropsim.motion.synthetic import stepping_clip
from dropsim.priors import cvae, pose
from dropsim.priors.cvae import HISTORY_SIZE, POSE_VELOCITY_SIZE, CVAEPrior, CVAEShape, difference_memory
from dropsim.priors.intent import Intent
from dropsim.priors.prior import State
from dropsim.research.training import network as twin

BODY = Skeleton.adult(height=1.62)
TORCH_BODY = twin.Body.of(BODY, torch.float64)
SHAPE = CVAEShape(latent=6, decoder=(48, 32), prior=(32,), groups=8, kinematic=True)
TOLERANCE = 1e-6


def close(ours: torch.Tensor, theirs: np.ndarray, tolerance: float = TOLERANCE) -> None:
    np.testing.assert_allclose(ours.detach().numpy(), theirs, rtol=0, atol=tolerance)


@pytest.mark.parametrize("size", [1e-9, 1e-4, 0.1, 2.0, 3.0])
def test_exp_and_log_are_the_run_times(rng: np.random.Generator, size: float):
    rotvec = size * rotations.normalize(rng.normal(size=(50, 3)))
    R = rotations.exp(rotvec)
    close(twin.exp(torch.from_numpy(rotvec)), R)
    close(twin.log_small(torch.from_numpy(R)), rotations.log_small(R))


def test_bodies_are_the_run_times(rng: np.random.Generator, random_rotations: Callable[..., np.ndarray]):
    q, root = random_rotations(40, NUM_JOINTS), rng.normal(size=(40, 3))
    # Lying on the side: the body's right points straight up, so that it has no heading.
    q[0, 0] = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    close(twin.heading(torch.from_numpy(q[:, 0])), rotations.heading(q[:, 0]))
    close(twin.mirrored_rotations(torch.from_numpy(q)), skeleton.mirrored_rotations(q))
    close(TORCH_BODY.forward(torch.from_numpy(q), torch.from_numpy(root)), BODY.forward(q, root))


def some_states(rng: np.random.Generator, random_rotations: Callable[..., np.ndarray], count: int = 12) -> State:
    """People anywhere, heading anywhere, moving anyhow."""
    q = rotations.exp(0.4 * rng.normal(size=(count, NUM_JOINTS, 3)))
    q[:, 0] = random_rotations(count)
    x = BODY.forward(q, 3 * rng.normal(size=(count, 3)))
    q0 = rotations.exp(0.05 * rng.normal(size=(count, NUM_JOINTS, 3))) @ q
    x0 = BODY.forward(q0, x[:, 0] - 0.05 * rng.normal(size=(count, 3)))
    past = rng.normal(size=(count, HISTORY_SIZE))
    return State(x, (x - x0) * 30, q, np.concatenate((difference_memory(x0, q0, x, q, 30.0), past), axis=-1))


def as_local(state: State) -> twin.Local:
    return twin.Local(*(torch.from_numpy(values) for values in (state.x[:, 0], state.q, state.x, state.memory)))


def random_network(rng: np.random.Generator) -> twin.CVAENetwork:
    """Random weights, and constants that all take part."""
    network = twin.CVAENetwork(SHAPE)
    for name, values in network.state_dict().items():
        drawn = rng.normal(size=values.shape) / math.sqrt(values.shape[-1])
        if name == "free":
            drawn = rng.random(values.shape) < 0.7
        elif name.endswith("scale") or name == "carry":
            drawn = 0.5 + 0.5 * np.abs(drawn)
        values.copy_(torch.from_numpy(np.asarray(drawn)))
    network.free[0] = 1.0  # the root always turns freely
    network.pull[0] = 0.0  # and nothing pulls at it
    network.held.mul_(1 - network.free)
    network.output_scale.mul_(0.05)
    return network


def exported(network: twin.CVAENetwork) -> cvae.CVAENetwork:
    return cvae.CVAENetwork(network.shape, twin.arrays_of(network))


def some_intents(rng: np.random.Generator, count: int) -> Intent:
    """Every combination of what may be known, over and over."""
    angle = rng.uniform(-math.pi, math.pi, size=count)
    facing = np.stack((np.cos(angle), np.sin(angle)), axis=-1)
    known = (np.arange(count)[:, None] >> np.arange(3)) % 2 == 1
    velocity, height = rng.normal(size=(count, 2)), rng.normal(size=count)
    return Intent(
        np.where(known[:, :1], velocity, np.nan),
        np.where(known[:, 1:2], facing, np.nan),
        np.where(known[:, 2], height, np.nan),
    )


def test_a_step_in_torch_is_a_step_of_the_exported_prior(
    rng: np.random.Generator, random_rotations: Callable[..., np.ndarray]
):
    # The state vector, the networks and the composed frame: what training differentiates against what the simulator
    # runs.
    state, network = some_states(rng, random_rotations), random_network(rng)
    prior = CVAEPrior(exported(network), BODY)
    noise = rng.normal(size=(len(state.x), 1, SHAPE.latent))
    intent = some_intents(rng, len(state.x))
    expected = prior.decode(state, noise, intent)
    frame = twin.recentred(as_local(state), TORCH_BODY)
    # Networks are of single precision, so that their output differs by its rounding; everything else is not.
    H = rotations.heading(state.q[:, 0])[:, :2, :2]
    vectors = np.stack((intent.velocity, intent.facing), axis=1) @ H.transpose(0, 2, 1)
    wanted = torch.from_numpy(np.concatenate((vectors.reshape(-1, 4), intent.height[:, None]), axis=1))
    frame = twin.sent(frame, wanted)
    wanted[:, :2] = frame.velocity[:, -POSE_VELOCITY_SIZE - 3 : -POSE_VELOCITY_SIZE - 1]  # people go on their way
    seen = network.normalized(twin.state_vector(frame, TORCH_BODY.rest[0]), wanted).float()
    mean, log_variance = network.latent(seen)
    z = mean + (0.5 * log_variance).exp() * torch.from_numpy(noise[:, 0]).float()
    output = network.decode(seen, z).double()
    then = twin.compose_kinematic(frame, output, network.double(), TORCH_BODY, 30.0)
    # Both in the heading frame of the new root, where nothing depends on place and direction.
    made = twin.recentred(then, TORCH_BODY)
    ran = State(expected.x[:, 0], state.v, expected.q[:, 0], expected.memory[:, 0])
    wanted = twin.recentred(as_local(ran), TORCH_BODY)
    for name in ("root", "q", "joints", "velocity"):
        # Velocities are differences over 1/30 s.
        close(getattr(made, name), getattr(wanted, name).numpy(), 30 * TOLERANCE if name == "velocity" else TOLERANCE)


def test_gradients_pass_through_a_step(rng: np.random.Generator, random_rotations: Callable[..., np.ndarray]):
    # The derivative by autograd is that of finite differences.
    frame, network = (
        twin.recentred(as_local(some_states(rng, random_rotations, 2)), TORCH_BODY),
        random_network(rng).double(),
    )
    output = 0.05 * torch.randn(2, SHAPE.output_size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def made(output: torch.Tensor) -> torch.Tensor:
        then = twin.recentred(twin.compose_kinematic(frame, output, network, TORCH_BODY, 30.0), TORCH_BODY)
        return twin.state_vector(then, TORCH_BODY.rest[0])

    assert torch.autograd.gradcheck(made, (output.requires_grad_(),), fast_mode=True)


def test_the_pose_network_is_the_run_times():
    torch.manual_seed(0)
    network = twin.PoseNetwork(pose.PoseShape((64,), (64, 32), (32, 16)))
    network.input_mean.normal_()
    network.input_scale.uniform_(0.5, 1.0)
    exported = pose.PosePrior(pose.PoseNetwork(network.shape, twin.arrays_of(network)))
    q = stepping_clip(1.0).q
    with torch.no_grad():
        seen = twin.flatten_pose(torch.from_numpy(q).float())
        code = network.encode(seen)
        # Norms are of order ten, in single precision.
        close(network.norm(seen), exported.norm(q), 1e-5)
        close(code, exported.encode(q), 1e-5)
        close(network.decode(code), exported.decode(code.double().numpy()), 1e-5)


WITHOUT_TORCH = """
import importlib, pkgutil, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "roma"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
import dropsim

for module in pkgutil.walk_packages(dropsim.__path__, "dropsim."):
    if module.name != "dropsim.__main__" and (not module.name.startswith("dropsim.research.training.") or module.name.endswith(".starts")):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if error.name.partition(".")[0] in ("torch", "roma"):
                print(module.name, "needs", error.name)
            elif error.name.partition(".")[0] == "dropsim":
                raise
from dropsim.apps.cli import main
sys.exit(main(["train", "prior", "--data", "data", "--out", "out"]))
"""


@pytest.mark.slow
def test_only_training_needs_torch(tmp_path: Path):
    environment = {"PYTHONPATH": str(Path(dropsim.__file__).parents[1]), "HOME": str(tmp_path)}
    command = [sys.executable, "-c", WITHOUT_TORCH]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert result.stdout == ""
    assert result.stderr == "dropsim: training needs PyTorch: run `pip install 'dropsim[train]'`\n"
    assert result.returncode == 2
