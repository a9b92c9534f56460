"""Start states of recordings."""

import numpy as np

from dropsim.body.skeleton import Skeleton
from dropsim.motion.clips import Clip
from dropsim.motion.motion import Motion
from dropsim.motion.synthetic import stepping_clip
from dropsim.priors.cvae import CVAENetwork, CVAEPrior, CVAEShape
from dropsim.research.training.starts import draw_frames, held_out_starts

CLIP = stepping_clip(3.0)


def clip(category: str, motion: Motion) -> tuple[Clip, Motion]:
    return Clip(f"{category} clip", "01", category, len(motion), held_out=True), motion


def test_frames_are_drawn_in_turn_from_each_category():
    clips = [clip("walk", CLIP), clip("run", CLIP.slice(0, 20)), clip("walk", CLIP.slice(0, 40))]
    places = draw_frames(clips, 40, seed=2)
    assert places == draw_frames(clips, 40, seed=2) != draw_frames(clips, 40, seed=3)
    assert [clips[i][0].category for i, _ in places] == ["run", "walk"] * 20
    assert {i for i, _ in places} == {0, 1, 2}
    assert all(1 <= frame < len(clips[i][1]) for i, frame in places)
    shape = CVAEShape(latent=4, decoder=(32,), prior=(32,), groups=4, kinematic=True)
    prior = CVAEPrior(CVAENetwork.random(shape), Skeleton.adult())
    starts, places = held_out_starts(clips, prior, 4, seed=2), draw_frames(clips, 4, seed=2)
    assert np.array_equal(starts.x[1], clips[places[1][0]][1].joints[places[1][1]])
