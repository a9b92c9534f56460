"""The baseline in MuJoCo, where it is installed: our body, and the laws that it has to obey."""

import numpy as np
import pytest

from dropsim.body.skeleton import Skeleton
from dropsim.files.units import GRAVITY
from dropsim.research.evaluation import mujoco_ragdoll
from dropsim.research.evaluation.trials import Body, Trial, toward

mujoco = pytest.importorskip("mujoco")


def test_the_model_is_our_body():
    skeleton = Skeleton.adult()
    model = mujoco.MjModel.from_xml_string(mujoco_ragdoll.model_text(skeleton))
    assert model.nbody == 23
    np.testing.assert_allclose(model.body_mass[1:], skeleton.masses[mujoco_ragdoll.ORDER], rtol=1e-5)
    np.testing.assert_allclose(model.body_pos[2:], skeleton.offsets[mujoco_ragdoll.ORDER[1:]], rtol=0, atol=1e-5)


def test_it_starts_as_the_person_and_takes_the_push():
    trials = [Trial("stand", 0, (0.0, 0.0, 0.0), "torso", 1, 3), Trial("stand", 0, toward(0.0, 500.0), "torso", 1, 3)]
    simulator = Body.of(4).simulator()
    motion, finished = mujoco_ragdoll.tracked(simulator, trials, 6)
    assert finished.all()
    assert motion is not None
    np.testing.assert_allclose(motion.joints[0, 0], motion.joints[1, 0], rtol=0, atol=1e-9)
    np.testing.assert_allclose(motion.skeleton.forward(motion.q, motion.root), motion.joints, rtol=0, atol=1e-5)
    # Newton: the push moves the centre of mass by F t^2 / 2 m and then F t dt / m; standing feet hold some of it back.
    centre = motion.skeleton.centre_of_mass(motion.joints)
    way = (centre[1] - centre[0])[4, 1]
    free = 500.0 * 0.1**2 / 2 / motion.skeleton.masses.sum()
    assert 0.5 * free < way < 1.1 * free
    assert (np.diff(centre[..., 2], axis=1) > -1.5 * GRAVITY * (6 / 30) / 30).all()
