"""Retargeting: one walk on many rigs, zero poses, units and axes is the same walk, and CMU's files are mended."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from dropsim.apps.cli import main
from dropsim.body.rotations import rotmat_to_rotvec, rotvec_to_rotmat, swing
from dropsim.body.skeleton import JOINTS, NUM_JOINTS, PARENTS, Skeleton, joint_index
from dropsim.motion import cmu
from dropsim.motion.bvh import Y_TO_Z_UP, BvhFile, Rig, RigMotion, read_bvh
from dropsim.motion.motion import Motion
from dropsim.motion.reading import read_motion
from dropsim.motion.retarget import OPTIONAL, known_rig_maps, match_source, plain, read_rig_map, retarget, spellings
from dropsim.motion.synthetic import stepping_clip

SKELETON = Skeleton.adult()
BONES = list(range(1, NUM_JOINTS))


def _lively(clip: Motion) -> Motion:
    """The stepping clip going somewhere, turning on the way, with a spine that bends and a head that looks about."""
    time = np.arange(len(clip)) / clip.fps
    axes = np.random.default_rng(1).standard_normal((NUM_JOINTS, 3))
    bend = np.zeros((len(clip), NUM_JOINTS, 3))
    moving = [joint_index(name) for name in ("spine1", "spine2", "spine3", "neck", "left_collar", "right_collar")]
    bend[:, moving] = (
        0.25 * axes[moving] / np.linalg.norm(axes[moving], axis=-1, keepdims=True) * np.cos(3 * time)[:, None, None]
    )
    turn = np.zeros((len(clip), 3))
    turn[:, 2] = 0.8 * time - 0.3
    q = rotvec_to_rotmat(bend) @ clip.q
    q[:, 0] = rotvec_to_rotmat(turn) @ q[:, 0]
    path = np.stack((1.3 * time, -0.4 * time, np.zeros_like(time)), axis=-1)
    return Motion.from_rotations(SKELETON, clip.fps, clip.root + path, q)


CLIP = _lively(stepping_clip(0.8))

# Our z-up world in a file's axes: rows of the rotation that a writer of such files applies.
TO_FILE = {
    "x": np.array([[0.0, 0, 1], [1, 0, 0], [0, 1, 0]]),
    "y": np.array([[1.0, 0, 0], [0, 0, 1], [0, -1, 0]]),
    "z": np.eye(3),
}


def directions(joints: np.ndarray) -> np.ndarray:
    bones = joints[:, BONES] - joints[:, [PARENTS[j] for j in BONES]]
    return bones / np.linalg.norm(bones, axis=-1, keepdims=True)


# --- a small writer of other people's files


@dataclass(frozen=True)
class Node:
    """A joint of a made-up rig: it sits somewhere on our rest body and turns like one of our joints."""

    name: str
    parent: str
    turns: int
    at: np.ndarray
    lost: bool = False
    """Whether the file leaves its offset out, as CMU's conversion does."""
    is_end: bool = False


def rig_of(names: dict[str, str], prefix: str = "") -> list[Node]:
    """One node per named joint; one that the rig lacks passes its children on to its parent."""
    nodes = []
    for j, joint in enumerate(JOINTS):
        if joint in names:
            above = PARENTS[j]
            while above >= 0 and JOINTS[above] not in names:
                above = PARENTS[above]
            parent = prefix + names[JOINTS[above]] if above >= 0 else ""
            nodes.append(Node(prefix + names[joint], parent, j, SKELETON.rest[j]))
    return nodes


def names_of(rig_map: str, spelling: int = 0) -> dict[str, str]:
    """Names of a known rig's joints, in the first of its map's spellings, or the last for -1."""
    (joints,) = (m.joints for m in known_rig_maps() if m.name == rig_map)
    return {joint: spellings(names)[spelling] for joint, names in joints.items()}


MIXAMO, UNREAL, UNREAL5, MMD = names_of("mixamo"), names_of("unreal", -1), names_of("unreal"), names_of("mmd")
UNITY = names_of("humanoid") | {"spine1": "Spine"}
RIGIFY = names_of("humanoid", -1) | {"spine1": "spine.001"}
BIPED = {joint: f"Bip01_{name.replace(' ', '_')}" for joint, name in names_of("biped").items()}


def halfway(nodes: list[Node], name: str, above: str, below: str) -> list[Node]:
    """Put a joint into the middle of a bone; it turns with the bone."""
    index = {node.name: k for k, node in enumerate(nodes)}
    top, end = nodes[index[above]], nodes[index[below]]
    middle = Node(name, above, top.turns, (top.at + end.at) / 2)
    rest = [replace(node, parent=name) if node.name == below else node for node in nodes]
    return [*rest[: index[below]], middle, *rest[index[below] :]]


def mannequin(version: int) -> list[Node]:
    """Unreal's mannequin with fingers, twist joints, targets of inverse kinematics, and correctives in 5."""
    nodes = rig_of(UNREAL)
    if version == 5:
        nodes = halfway(rig_of(UNREAL5), "spine_04", "spine_02", "spine_05")
        nodes = halfway(halfway(nodes, "spine_03", "spine_02", "spine_04"), "neck_02", "neck_01", "head")
    at = {node.name: node for node in nodes}
    nodes = [Node("root", "", 0, np.zeros(3)), *(replace(n, parent="root") if not n.parent else n for n in nodes)]

    def add(name: str, parent: str, away: Sequence[float] = (0.0, 0.0, 0.0)) -> None:
        above = at[parent]
        at[name] = Node(name, parent, above.turns, above.at + np.array(away))
        nodes.append(at[name])

    for side, x in (("l", 1.0), ("r", -1.0)):
        for part in ("upperarm", "lowerarm", "thigh", "calf"):
            for k in (1, 2)[: version - 3]:
                away = (0.05 * x, 0.0, 0.0) if "arm" in part else (0.0, -0.1 * k, 0.0)
                add(f"{part}_twist_0{k}_{side}", f"{part}_{side}", away)
        for finger, z in (("thumb", 0.03), ("index", 0.02), ("middle", 0.0), ("ring", -0.02), ("pinky", -0.03)):
            parent = f"hand_{side}"
            for k in (1, 2, 3):
                add(f"{finger}_0{k}_{side}", parent, (0.04 * x, 0.0, z if k == 1 else 0.0))
                parent = f"{finger}_0{k}_{side}"
        if version == 5:
            add(f"clavicle_out_{side}", f"clavicle_{side}", (0.05 * x, 0.0, 0.0))
            add(f"upperarm_correctiveRoot_{side}", f"upperarm_{side}")
    targets = {f"ik_foot_{side}": "ik_foot_root" for side in "lr"} | {f"ik_hand_{side}": "ik_hand_gun" for side in "lr"}
    targets = {"ik_foot_root": "root", "ik_hand_root": "root", "ik_hand_gun": "ik_hand_root"} | targets
    return nodes + [Node(name, parent, 0, np.zeros(3)) for name, parent in targets.items()]


def rigify() -> list[Node]:
    """Rigify's deform bones: limbs in two pieces, a pelvis bone on each side, fingers and a face."""
    nodes = rig_of(RIGIFY, "DEF-")
    at = {node.name: node for node in nodes}
    for side, x in (("L", 1.0), ("R", -1.0)):
        for upper, lower in (("thigh", "shin"), ("shin", "foot"), ("upper_arm", "forearm"), ("forearm", "hand")):
            nodes = halfway(nodes, f"DEF-{upper}.{side}.001", f"DEF-{upper}.{side}", f"DEF-{lower}.{side}")
        extra = {
            f"DEF-pelvis.{side}": ("DEF-spine", (0.1 * x, 0.05, 0.05)),
            f"DEF-breast.{side}": ("DEF-spine.003", (0.1 * x, 0.0, 0.1)),
            f"DEF-f_index.01.{side}": (f"DEF-hand.{side}", (0.08 * x, 0.0, 0.0)),
            f"DEF-eye.{side}": ("DEF-spine.006", (0.03 * x, 0.05, 0.1)),
        }
        nodes += [
            Node(name, parent, at[parent].turns, at[parent].at + np.array(away))
            for name, (parent, away) in extra.items()
        ]
    return nodes


def daz() -> list[Node]:
    """Genesis 8 has twist joints inside its limbs."""
    nodes = rig_of(names_of("daz"))
    for side in "lr":
        nodes = halfway(nodes, f"{side}ThighTwist", f"{side}ThighBend", f"{side}Shin")
        nodes = halfway(nodes, f"{side}ShldrTwist", f"{side}ShldrBend", f"{side}ForearmBend")
        nodes = halfway(nodes, f"{side}ForearmTwist", f"{side}ForearmBend", f"{side}Hand")
    return nodes


def biped() -> list[Node]:
    """3ds Max's centre of mass is above the pelvis, on which the legs hang."""
    pelvis, *others = rig_of(BIPED)
    return [Node("Bip01", "", 0, pelvis.at), replace(pelvis, parent="Bip01"), *others]


def mmd() -> list[Node]:
    """The legs hang on the lower body, the spine on the upper one, and both on a centre that carries the path."""
    pelvis, *others = rig_of(MMD)
    centre = Node("センター", "", 0, pelvis.at)
    return [
        centre,
        replace(pelvis, parent="センター"),
        *(replace(n, parent="センター") if n.name == "上半身" else n for n in others),
    ]


def bandai() -> list[Node]:
    """Bandai-Namco's files have a root on the floor, and the hips below it carry the path."""
    hips, *others = rig_of(names_of("bandai"))
    return [Node("joint_Root", "", 0, np.zeros(3)), replace(hips, parent="joint_Root"), *others]


def cmu_rig() -> list[Node]:
    """The cgspeed hierarchy, with the three kinds of bones that the conversion lost."""
    rest, at = SKELETON.rest, dict(zip(JOINTS, SKELETON.rest, strict=True))
    # The repair makes the thorax 1.003 times as long as the bone below it, and the palm half as long as the bone before
    # the hand.
    low = at["spine2"] - (at["spine3"] - at["spine2"]) / 1.003
    nodes = [Node("Hips", "", 0, rest[0]), Node("LowerBack", "Hips", 0, rest[0]), Node("Spine", "LowerBack", 3, low)]
    nodes += [Node("Spine1", "Spine", 6, at["spine2"]), Node("Neck", "Spine1", 9, at["spine3"], lost=True)]
    nodes += [Node("Neck1", "Neck", 9, 0.5 * (at["spine3"] + at["neck"])), Node("Head", "Neck1", 12, at["neck"])]
    nodes += [Node("Head_end", "Head", 12, at["head"], is_end=True)]
    for side in ("Left", "Right"):
        point = {
            part: at[f"{side.lower()}_{part}"]
            for part in ("hip", "knee", "ankle", "foot", "shoulder", "elbow", "wrist")
        }
        turns = {part: joint_index(f"{side.lower()}_{part}") for part in (*point, "collar")}
        hand = point["elbow"] / 3 + point["wrist"] * 2 / 3
        nodes += [
            Node(f"{side[0]}HipJoint", "Hips", 0, rest[0]),
            Node(f"{side}UpLeg", f"{side[0]}HipJoint", turns["hip"], point["hip"]),
            Node(f"{side}Leg", f"{side}UpLeg", turns["knee"], point["knee"]),
            Node(f"{side}Foot", f"{side}Leg", turns["ankle"], point["ankle"]),
            Node(f"{side}ToeBase", f"{side}Foot", turns["foot"], point["foot"]),
            Node(f"{side}Shoulder", "Spine1", turns["collar"], at["spine3"], lost=True),
            Node(f"{side}Arm", f"{side}Shoulder", turns["shoulder"], point["shoulder"]),
            Node(f"{side}ForeArm", f"{side}Arm", turns["elbow"], point["elbow"]),
            Node(f"{side}Hand", f"{side}ForeArm", turns["elbow"], hand),
            Node(f"{side}FingerBase", f"{side}Hand", turns["wrist"], point["wrist"], lost=True),
        ]
    return nodes


def t_pose() -> np.ndarray:
    """Global rotations of our joints in a rig's zero pose."""
    return np.tile(np.eye(3), (NUM_JOINTS, 1, 1))


def arms_down() -> np.ndarray:
    """Blender's and Mixamo's A-pose and further: arms hang by 80 degrees."""
    zero = t_pose()
    for side, sign in (("left", -1.0), ("right", 1.0)):
        down = rotvec_to_rotmat(np.array([0.0, 0.0, sign * math.radians(80)]))
        zero[[joint_index(f"{side}_{part}") for part in ("shoulder", "elbow", "wrist")]] = down
    return zero


def accad_rig() -> list[Node]:
    """ACCAD's: one joint in place of two in the lower spine, one known by its name, shoulders anywhere."""
    nodes = {JOINTS[node.turns]: node for node in rig_of({k: v for k, v in MIXAMO.items() if k != "spine2"})}
    nodes["spine3"] = replace(nodes["spine3"], name="Spine1")
    nodes |= {k: replace(n, parent="Spine1") for k, n in nodes.items() if n.parent == "Spine2"}
    for side, sign in (("left", 1.0), ("right", -1.0)):
        nodes[f"{side}_collar"] = replace(
            nodes[f"{side}_collar"], at=nodes["neck"].at + np.array([sign * 0.02, 0.01, 0.03])
        )
    to_spine = Node("ToSpine", "Hips", 0, SKELETON.rest[0] + np.array([0.0, 0.0, -0.08]))
    return [nodes.pop("pelvis"), to_spine, *nodes.values()]


def accad_zero() -> np.ndarray:
    """ACCAD's zero pose Z = S^T P: hanging arms P of ours, and the orientations S of its map."""
    (rig_map,) = (m for m in known_rig_maps() if m.name == "accad")
    zero = arms_down()
    for node in accad_rig():
        if node.name != "ToSpine":
            zero[node.turns] = rotvec_to_rotmat(np.deg2rad(rig_map.standing[node.name])).T @ zero[node.turns]
    return zero


def standing(zero: np.ndarray, up: str) -> np.ndarray:
    """A zero pose turned so that it stands in a file with this axis up."""
    return TO_FILE[up] @ Y_TO_Z_UP @ zero


def along_x() -> np.ndarray:
    """LAFAN1's zero pose, which no body can take: every bone points along +x, and the hips' left is +z."""
    hips = np.array([[0.0, 1, 0], [0, 0, 1], [1, 0, 0]])  # up to +x, front to +y, left to +z
    zero = np.tile(hips, (NUM_JOINTS, 1, 1))
    for j in range(1, NUM_JOINTS):
        children = [c for c in range(NUM_JOINTS) if PARENTS[c] == j]
        if len(children) == 1:
            zero[j] = swing(SKELETON.offsets[children[0]], np.array([1.0, 0, 0]))
    return zero


def bvh_text(
    nodes: Sequence[Node],
    *,
    zero: np.ndarray,
    up: str = "y",
    unit: float = 1.0,
    order: str = "ZYX",
    stretch: bool = False,
    motion: Motion = CLIP,
) -> str:
    """Write a motion on a rig; its global rotations are R(t) Z^T, with Z our joints in its zero pose."""
    index = {node.name: k for k, node in enumerate(nodes)}
    W, rng = TO_FILE[up], np.random.default_rng(0)
    R = SKELETON.global_rotations(motion.q)
    G = [W @ R[:, node.turns] @ zero[node.turns].T for node in nodes]
    offsets = []
    for node in nodes:
        above = nodes[index[node.parent]] if node.parent else None
        offset = np.zeros(3) if above is None else zero[above.turns] @ (node.at - above.at)
        # Other proportions: every bone longer or shorter, each in its own way.
        offsets.append(offset * (rng.uniform(0.7, 1.3) if stretch else 1.0) / unit)
    root = motion.root @ W.T / unit
    carrier = 1 if nodes[0].name in ("joint_Root", "root") else 0
    lines, columns = ["HIERARCHY"], []

    def add(k: int, indent: str) -> None:
        node, children = nodes[k], [c for c, other in enumerate(nodes) if other.parent == nodes[k].name]
        offset = np.zeros(3) if node.lost else offsets[k]
        lines.append(f"{indent}{'End Site' if node.is_end else f'JOINT {node.name}' if k else f'ROOT {node.name}'}")
        lines.extend((f"{indent}{{", f"{indent} OFFSET " + " ".join(f"{v:.12g}" for v in offset.tolist())))
        if not node.is_end:
            has_path = k == carrier
            position = "Xposition Yposition Zposition " if has_path else ""
            lines.append(
                f"{indent} CHANNELS {6 if has_path else 3} {position}" + " ".join(f"{axis}rotation" for axis in order)
            )
            local = G[k] if not node.parent else G[index[node.parent]].swapaxes(-1, -2) @ G[k]
            if carrier and k == 0:
                local = np.broadcast_to(np.eye(3), G[0].shape)
            elif carrier and k == carrier:
                local = G[k]
            if has_path:
                columns.append(root)
            columns.append(Rotation.from_matrix(local).as_euler(order, degrees=True))
            for child in children:
                add(child, indent + " ")
            if not children:
                lines.extend(
                    (f"{indent} End Site", f"{indent} {{", f"{indent}  OFFSET 0 0 {0.1 / unit:.6f}", f"{indent} }}")
                )
        lines.append(f"{indent}}}")

    add(0, "")
    lines += ["MOTION", f"Frames: {len(motion)}", f"Frame Time: {1 / motion.fps:.7f}"]
    values = np.concatenate(columns, axis=-1)
    lines += [" ".join(f"{v:.12g}" for v in row) for row in values.tolist()]
    return "\n".join(lines) + "\n"


def read_text(folder: Path, text: str, name: str = "take") -> RigMotion:
    (folder / f"{name}.bvh").write_text(text)
    return read_bvh(folder / f"{name}.bvh")


def on_ours(source: RigMotion, **options: Any) -> Motion:
    return retarget(source, SKELETON, **options).motion


# --- one walk on many rigs

RIGS = {
    "dropsim": (rig_of(names_of("dropsim")), "dropsim"),
    "cmu": (cmu_rig(), "cmu"),
    "mixamo": (rig_of(MIXAMO), "mixamo"),
    "mixamo with its prefix": (rig_of(MIXAMO, "mixamorig:"), "mixamo"),
    "lafan1": (rig_of(names_of("lafan1")), "lafan1"),
    "bandai": (bandai(), "bandai"),
    "unity": (rig_of(UNITY), "humanoid"),
    "rigify": (rig_of(RIGIFY), "humanoid"),
    "accad": (accad_rig(), "accad"),
    "100style": (rig_of(names_of("100style")), "100style"),
    "unreal 4": (mannequin(4), "unreal"),
    "unreal 5": (mannequin(5), "unreal"),
    "rigify's whole deform rig": (rigify(), "humanoid"),
    "rokoko": (rig_of(names_of("rokoko")), "rokoko"),
    "xsens": (rig_of(names_of("xsens")), "xsens"),
    "daz genesis 8": (daz(), "daz"),
    "daz genesis 9": (rig_of(names_of("daz9")), "daz9"),
    "vroid": (rig_of(names_of("vroid")), "vroid"),
    "3ds max biped": (biped(), "biped"),
    "smpl": (rig_of(names_of("smpl")), "smpl"),
    "smpl with its prefix": (rig_of(names_of("smpl"), "m_avg_"), "smpl"),
    "japanese": (mmd(), "mmd"),
}
NOT_CARRIED = {"bandai": {"spine3"}, "accad": {"spine2", "spine3"}, "japanese": {"spine1", "spine3"}} | {
    "cmu": {"neck", "head", "left_collar", "right_collar", "left_shoulder", "right_shoulder"}
}
"""Bones whose direction a rig does not have: CMU's lost ones and its head, which leans forward when the face is level,
and the spines of Bandai and ACCAD, which have one joint less."""


LEAN = 0.05
"""Where a frame of the motion has to serve as the reference, its trunk counts as level: this clip's leans by less than
this [rad]."""


def assert_same_person(motion: Motion, *, but: set[str] = frozenset(), within: float = 1e-6) -> None:
    """Bones point alike, the person stands, has its left on its left and bends its knees to the front."""
    checked = [i for i, j in enumerate(BONES) if JOINTS[j] not in but]
    # Files have twelve digits: 1e-12 of a bone's length, 1e-10 degrees along nine joints. Four orders of slack.
    np.testing.assert_allclose(
        directions(motion.joints)[:, checked], directions(CLIP.joints)[:, checked], rtol=0, atol=within
    )
    x = {name: motion.joints[:, j] for j, name in enumerate(JOINTS)}
    assert (x["head"][:, 2] > x["spine1"][:, 2] + 0.3).all()
    assert (x["spine1"][:, 2] > x["left_ankle"][:, 2] + 0.5).all()
    up = np.array([0.0, 0, 1])
    front = motion.q[:, 0] @ up  # rest front is z
    left = np.cross(up, front)
    for part in ("hip", "shoulder", "elbow", "wrist"):
        assert (((x[f"left_{part}"] - x[f"right_{part}"]) * left).sum(-1) > 0.1).all(), part
    for side in ("left", "right"):
        knee = x[f"{side}_knee"] - (x[f"{side}_hip"] + x[f"{side}_ankle"]) / 2
        assert ((knee * front).sum(-1) > 0).all()
        assert (((x[f"{side}_foot"] - x[f"{side}_ankle"]) * front).sum(-1) > 0.05).all()


@pytest.mark.parametrize("rig", RIGS)
def test_every_known_rig_by_its_names(tmp_path: Path, rig: str):
    nodes, expected = RIGS[rig]
    zero = accad_zero() if rig == "accad" else t_pose()
    source = read_text(tmp_path, bvh_text(nodes, zero=zero, unit=0.01, stretch=True))
    assert match_source(source).rig_map.name == expected
    motion = on_ours(source)
    assert (motion.fps, len(motion), motion.name) == (30.0, len(CLIP), "take")
    assert_same_person(motion, but=NOT_CARRIED.get(rig, set()))


@pytest.mark.parametrize(
    ("rig", "zero", "up", "unit", "order"),
    [
        pytest.param("cmu", "t_pose", "y", 0.056444, "ZYX", id="cmu's unit"),
        pytest.param("mixamo", "arms_down", "y", 0.01, "ZXY", id="centimetres and hanging arms"),
        pytest.param("lafan1", "along_x", "y", 0.01, "ZYX", id="bones along x"),
        pytest.param("bandai", "t_pose", "y", 0.01, "ZXY", id="a root on the floor"),
        pytest.param("unity", "arms_down", "z", 1.0, "XYZ", id="z up"),
        pytest.param("rigify", "along_x", "z", 0.0254, "YZX", id="inches and z up"),
        pytest.param("dropsim", "arms_down", "x", 1.0, "YXZ", id="x up"),
        pytest.param("lafan1", "arms_down", "y", 1000.0, "XZY", id="kilometres"),
    ],
)
def test_zero_poses_axes_units_and_channel_orders(
    tmp_path: Path, rig: str, zero: str, up: str, unit: float, order: str
):
    poses = {"t_pose": t_pose(), "arms_down": arms_down(), "along_x": along_x()}
    text = bvh_text(RIGS[rig][0], zero=standing(poses[zero], up), up=up, unit=unit, order=order)
    # Nothing tells which way is up where the zero pose does not stand: it is y, as in most files, or it is given.
    motion = on_ours(read_text(tmp_path, text), up=up if zero == "along_x" else None)
    assert_same_person(motion, but=NOT_CARRIED.get(rig, set()), within=LEAN if zero == "along_x" else 1e-6)
    # The legs are as long as ours, so the scale is the unit and the hips are where they were.
    hips = (m.joints[:, 1:3].mean(1) for m in (motion, CLIP))
    np.testing.assert_allclose(*hips, rtol=0, atol=1e-6)


def test_a_zero_pose_that_no_body_can_take_does_not_twist_the_limbs(tmp_path: Path):
    # From LAFAN1's zero pose the least swing of a leg is a half turn about any axis: the thigh could come out twisted
    # by as much. A frame of the motion, where all swings are small, leaves twists of the order of those swings.
    motion = on_ours(read_text(tmp_path, bvh_text(rig_of(names_of("lafan1")), zero=along_x())))
    turned = np.linalg.norm(rotmat_to_rotvec(motion.q.swapaxes(-1, -2) @ CLIP.q), axis=-1).max(0)
    limbs = [
        j for j, name in enumerate(JOINTS) if name.rpartition("_")[2] in ("hip", "knee", "ankle", "shoulder", "elbow")
    ]
    assert turned[limbs].max() < 0.9


def test_prefixes_case_and_punctuation_do_not_matter():
    assert {
        plain(n) for n in ("mixamorig:LeftUpLeg", "a:b:leftupleg", "Left_UpLeg", "DEF-left.up.leg", "ORG_LeftUpLeg")
    } == {"leftupleg"}
    assert plain("define") == "define"
    assert plain("spine.001") != plain("spine")


# --- size, axes and units


def test_the_path_is_scaled_by_the_legs(tmp_path: Path):
    # A child of half our size in the file's metres: its steps become ours, twice as long.
    small = replace(CLIP, root=0.5 * CLIP.root)
    nodes = [replace(node, at=0.5 * node.at) for node in rig_of(MIXAMO)]
    source = read_text(tmp_path, bvh_text(nodes, zero=t_pose(), motion=small))
    scaled, true = on_ours(source), on_ours(source, unit=1.0)
    np.testing.assert_allclose(scaled.joints, CLIP.joints, rtol=0, atol=1e-6)
    # With the unit given the hips stay where the file has them, on our bones all the same.
    middle = true.joints[:, 1:3].mean(1)
    np.testing.assert_allclose(middle, 0.5 * CLIP.joints[:, 1:3].mean(1), rtol=0, atol=1e-6)
    assert true.skeleton.bone_error(true.joints).max() < 1e-9


def lying() -> Motion:
    """The clip on its back, head along +y: what stood along z lies nearly along y."""
    lie = rotvec_to_rotmat(np.array([-1.5, 0, 0]))
    return Motion.from_rotations(
        SKELETON, 30.0, CLIP.root @ lie.T, np.concatenate((lie @ CLIP.q[:, :1], CLIP.q[:, 1:]), axis=1)
    )


@pytest.mark.parametrize("rig", ["cmu", "bandai", "accad"])
def test_people_who_lie_are_not_stood_up(tmp_path: Path, rig: str):
    # A body stretched along a horizontal axis for the whole clip: only the rig can tell which way is up.
    zero = accad_zero() if rig == "accad" else t_pose()
    recording = retarget(read_text(tmp_path, bvh_text(RIGS[rig][0], zero=zero, unit=0.01, motion=lying())), SKELETON)
    checked = [i for i, j in enumerate(BONES) if JOINTS[j] not in NOT_CARRIED.get(rig, ())]
    np.testing.assert_allclose(
        directions(recording.motion.joints)[:, checked], directions(lying().joints)[:, checked], rtol=0, atol=1e-6
    )
    np.testing.assert_allclose(recording.motion.root, lying().root, rtol=0, atol=1e-6)
    assert recording.up == "y"
    assert recording.up_from == ("known layout" if rig in ("cmu", "accad", "100style") else "rest pose")


@pytest.mark.parametrize("up", ["x", "y", "z"])
def test_the_rest_pose_tells_which_way_is_up(tmp_path: Path, up: str):
    zero = standing(arms_down(), up)
    recording = retarget(read_text(tmp_path, bvh_text(rig_of(UNITY), zero=zero, up=up, motion=lying())), SKELETON)
    assert (recording.up, recording.up_from) == (up, "rest pose")
    np.testing.assert_allclose(recording.motion.joints, lying().joints, rtol=0, atol=1e-6)


def test_the_up_axis_that_is_given_counts(tmp_path: Path):
    # SMPL's own habit: the rest pose is y up, the world z up. Nothing in the file says so.
    source = read_text(tmp_path, bvh_text(rig_of(UNITY), zero=t_pose(), up="z"))
    given = retarget(source, SKELETON, up="z")
    assert (given.up, given.up_from) == ("z", "as given")
    assert_same_person(given.motion)
    assumed = retarget(source, SKELETON)
    assert (assumed.up, assumed.up_from) == ("y", "rest pose")
    # Most of this clip now lies, and the line that commands print says so.
    assert "give --up z" in assumed.read_as
    assert "--up" not in given.read_as


def test_a_zero_pose_that_does_not_stand_tells_nothing(tmp_path: Path):
    recording = retarget(
        read_text(tmp_path, bvh_text(rig_of(names_of("lafan1")), zero=along_x(), motion=lying())), SKELETON
    )
    assert (recording.up, recording.up_from) == ("y", "custom, as the zero pose does not stand")
    np.testing.assert_allclose(directions(recording.motion.joints), directions(lying().joints), rtol=0, atol=LEAN)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"up": "w"}, "x, y or z, not"),
        *(({"unit": unit}, "positive number of metres") for unit in (0.0, math.nan)),
    ],
)
def test_options_that_cannot_work(tmp_path: Path, options: dict, message: str):
    source = read_text(tmp_path, bvh_text(rig_of(UNITY), zero=t_pose()))
    with pytest.raises(ValueError, match=message):
        on_ours(source, **options)


# --- hierarchies that nobody knows


def test_an_unknown_hierarchy_lists_what_could_not_be_matched(tmp_path: Path):
    names = MIXAMO | {"left_knee": "Gizmo", "right_wrist": "Widget"}
    # No right leg, so the structure shows no person either.
    names = {joint: name for joint, name in names.items() if joint not in ("right_knee", "right_ankle", "right_foot")}
    (tmp_path / "odd.bvh").write_text(bvh_text(rig_of(names), zero=t_pose()))
    with pytest.raises(ValueError, match="none of the known rigs") as error:
        read_motion(tmp_path / "odd.bvh", SKELETON)
    message = str(error.value)
    for part in (str(tmp_path / "odd.bvh"), "mixamo", "left_knee (LeftLeg)", "dropsim rig FILE --save", "Gizmo"):
        assert part in message
    assert "left_hip" not in message  # which is there
    assert "\n" not in message


def test_legs_without_length(tmp_path: Path):
    nodes = [
        replace(n, at=SKELETON.rest[0]) if "leg" in n.name.lower() or "foot" in n.name.lower() else n
        for n in rig_of(MIXAMO)
    ]
    source = read_text(tmp_path, bvh_text(nodes, zero=t_pose()))
    with pytest.raises(ValueError, match="legs have no length"):
        on_ours(source)


def test_a_rig_may_lack_what_is_optional(tmp_path: Path):
    names = {joint: name for joint, name in UNITY.items() if joint not in OPTIONAL}
    motion = on_ours(read_text(tmp_path, bvh_text(rig_of(names), zero=t_pose())))
    limbs = [i for i, j in enumerate(BONES) if JOINTS[j].rpartition("_")[2] in ("knee", "ankle", "elbow", "wrist")]
    np.testing.assert_allclose(
        directions(motion.joints)[:, limbs], directions(CLIP.joints)[:, limbs], rtol=0, atol=1e-6
    )
    eye = np.tile(np.eye(3), (len(CLIP), 1, 1))
    for joint in OPTIONAL:  # they move with their parents
        np.testing.assert_allclose(motion.q[:, joint_index(joint)], eye, rtol=0, atol=1e-12)


# --- a user's own map


def toml(names: dict[str, str]) -> str:
    return "[joints]\n" + "".join(f'{joint} = "{name}"\n' for joint, name in names.items())


ODD = {joint: f"bone{i}" for i, joint in enumerate(JOINTS)}


def test_a_users_own_map(tmp_path: Path):
    source = read_text(tmp_path, bvh_text(rig_of(ODD), zero=arms_down(), unit=0.01))
    names = {joint: name for joint, name in ODD.items() if joint not in ("head", "neck")}
    # A list takes the first that the rig has; a point between two joints is as good as a joint; an orientation may come
    # from elsewhere.
    extra = 'neck = ["nothing", "BONE12"]\nhead = { between = ["bone12", "bone15"], share = 1 }\n'
    extra += '[rotations]\nhead = "bone15"\n'
    (tmp_path / "odd.toml").write_text(toml(names) + extra)
    rig_map = read_rig_map(tmp_path / "odd.toml")
    assert_same_person(on_ours(source, rig_map=rig_map))


def test_a_map_that_does_not_fit_says_so(tmp_path: Path):
    source = read_text(tmp_path, bvh_text(rig_of(MIXAMO), zero=t_pose()))
    (tmp_path / "odd.toml").write_text(toml(ODD | {"pelvis": "Hips"}))
    with pytest.raises(ValueError, match="does not fit") as error:
        on_ours(source, rig_map=read_rig_map(tmp_path / "odd.toml"))
    assert "left_knee (bone4)" in str(error.value)
    assert "pelvis (" not in str(error.value)
    assert "LeftUpLeg" in str(error.value)


@pytest.mark.parametrize("joint", ["pelvis", "left_elbow"])
def test_an_orientation_from_a_joint_that_is_not_there(tmp_path: Path, joint: str):
    source = read_text(tmp_path, bvh_text(rig_of(MIXAMO), zero=t_pose()))
    (tmp_path / "odd.toml").write_text(toml(MIXAMO) + f'[rotations]\n{joint} = "gizmo"\n')
    with pytest.raises(ValueError, match=rf"{joint} \(gizmo\)"):
        on_ours(source, rig_map=read_rig_map(tmp_path / "odd.toml"))


def knee(value: str) -> str:
    return toml(ODD).replace('"bone4"', value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[joints\n", "not a TOML file"),
        ("a = " + 100_000 * "[", "not a TOML file"),
        ("", "says nothing of pelvis, left_hip"),
        ("# " + 1_000_000 * "x", "has more than 1 MB"),
        (toml(ODD) + 'tail = "Tail"\n', "there is no joint 'tail': use one of pelvis"),
        (toml(ODD) + '[rotations]\ntail = "Tail"\n', "there is no joint 'tail'"),
        (toml({k: v for k, v in ODD.items() if k != "left_knee"}), "says nothing of left_knee$"),
        ("scale = 2\n" + toml(ODD), "unknown field `scale`"),
        ("joints = 3\n", "joints: Expected `object`"),
        ('repair = "all"\n' + toml(ODD), "repair: "),
        ('up = "w"\n' + toml(ODD), "up: "),
        ("unit = -1\n" + toml(ODD), "unit: "),
        (toml(ODD) + "[standing]\nHips = [1, 2, inf]\n", "standing.Hips: "),
        (toml(ODD) + "[rotations]\nhead = 3\n", "rotations.head: .*a joint's name"),
        *((knee(value), "joints.left_knee: .*a joint's name") for value in ("4", "[]", '["a", 4]')),
        *((knee(f'{{ between = ["a", "b"]{share} }}'), "joints.left_knee: ") for share in ("", ", share = nan")),
    ],
)
def test_mistakes_in_a_map_are_a_sentence(tmp_path: Path, text: str | bytes, message: str):
    path = tmp_path / "map.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=message) as error:
        read_rig_map(path)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


def test_every_map_of_the_package_names_both_sides_alike():
    # A map with a slip in one side would pass any test on symmetric names of our own; so mirror each and compare.
    def mirrored(name: str) -> str:
        swapped = re.sub(
            "Left|Right|left|right", lambda m: {"L": "Right", "R": "Left", "l": "right", "r": "left"}[m[0][0]], name
        )
        swapped = swapped.translate(str.maketrans("左右", "右左"))
        return re.sub(
            r"(?<=[._])[LRlr]$|^[LRlr](?=[_ A-Z])|(?<=_Bip_)[LR](?=_)",
            lambda m: m[0].translate(str.maketrans("LRlr", "RLrl")),
            swapped,
        )

    for rig_map in known_rig_maps():
        for joint, source in rig_map.joints.items():
            assert spellings(rig_map.joints[mirrored(joint)]) == tuple(map(mirrored, spellings(source))), rig_map.name


# --- CMU's conversion


def cmu_source(frames: int, *, name: str = "take", fps: float = 120.0, t_pose_first: bool = True) -> RigMotion:
    """A made-up take on CMU's hierarchy whose bones have uneven lengths, its lost bones left out."""
    nodes = cmu_rig()
    index = {node.name: k for k, node in enumerate(nodes)}
    rng = np.random.default_rng(2)
    offsets = rng.standard_normal((len(nodes), 3))
    offsets[[k for k, node in enumerate(nodes) if node.lost]] = 0.0
    rig = Rig(tuple(index), tuple(index.get(node.parent, -1) for node in nodes), offsets)
    rotations = Rotation.random(frames * len(nodes), rng=rng).as_matrix().reshape(frames, len(nodes), 3, 3)
    if t_pose_first:
        rotations[0] = np.eye(3)
    return RigMotion(rig, fps, np.tile(offsets, (frames, 1, 1)), rotations, name)


def test_cmu_lost_bones_are_restored():
    source = cmu_source(3)
    mended = cmu.repair(source)
    at = {name: k for k, name in enumerate(source.rig.names)}
    # formats.md: Neck and both Shoulders (0, 1.003 |Spine1|, 0), FingerBase half the Hand; everything else as it was.
    expected = source.rig.offsets.copy()
    expected[[at["Neck"], at["LeftShoulder"], at["RightShoulder"]]] = np.array([0.0, 1.003, 0.0]) * np.linalg.norm(
        source.rig.offsets[at["Spine1"]]
    )
    for side in ("Left", "Right"):
        expected[at[f"{side}FingerBase"]] = 0.5 * source.rig.offsets[at[f"{side}Hand"]]
    np.testing.assert_allclose(mended.rig.offsets, expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(mended.translations, np.tile(expected, (2, 1, 1)), rtol=0, atol=1e-6)
    assert (mended.rig.names, mended.rig.parents) == (source.rig.names, source.rig.parents)
    # A file that somebody has repaired with numbers of their own keeps those.
    own = replace(
        source,
        rig=Rig(source.rig.names, source.rig.parents, expected + 0.5),
        translations=np.tile(expected + 0.5, (3, 1, 1)),
    )
    assert np.array_equal(cmu.repair(own).rig.offsets, expected + 0.5)


def test_cmu_bones_are_restored_under_other_spellings(tmp_path: Path):
    # Names are matched without namespace and case, so the repair must find them too.
    text = bvh_text(cmu_rig(), zero=t_pose(), unit=0.056444)
    expected = on_ours(read_text(tmp_path, text))
    changed = re.sub(r"(ROOT|JOINT) (\S+)", lambda m: f"{m[1]} cmu:{m[2].upper()}", text)
    np.testing.assert_allclose(on_ours(read_text(tmp_path, changed)).joints, expected.joints, rtol=0, atol=1e-12)


def test_cmu_first_frame_is_dropped_only_where_it_is_artificial():
    artificial = cmu_source(4)
    assert np.array_equal(cmu.repair(artificial).rotations, artificial.rotations[1:])
    recorded = cmu_source(4, t_pose_first=False)
    assert np.array_equal(cmu.repair(recorded).rotations, recorded.rotations)
    # A take that stays in the T-pose, or has no other frame, is all that there is.
    still = replace(artificial, rotations=np.tile(artificial.rotations[:1], (4, 1, 1, 1)))
    assert len(cmu.repair(still)) == 4
    assert len(cmu.repair(cmu_source(1))) == 1


def test_frames_are_counted_from_the_files_first(tmp_path: Path):
    # The conversion's artificial first frame is one of the file's, and not of ours.
    lines = bvh_text(cmu_rig(), zero=t_pose(), unit=0.056444).splitlines()
    first = next(k for k, line in enumerate(lines) if line.startswith("Frame Time")) + 1
    lines.insert(first, " ".join("0" for _ in lines[first].split()))
    text = "\n".join(lines).replace(f"Frames: {len(CLIP)}", f"Frames: {len(CLIP) + 1}")
    recording = retarget(read_text(tmp_path, text + "\n"), None)
    assert recording.fit is not None
    assert (recording.fit.first, len(recording.motion)) == (1, len(CLIP))


SLOW = min((info.frames, name) for name, info in cmu.clip_table().items() if info.fps == 60)
FAST = min((info.frames, name) for name, info in cmu.clip_table().items() if info.fps == 120)


@pytest.mark.parametrize(
    ("clip", "extra", "header", "expected"),
    [
        pytest.param(SLOW, 0, 120.0, 60.0, id="recorded at 60"),
        pytest.param(FAST, 0, 120.0, 120.0, id="recorded at 120"),
        pytest.param(SLOW, 0, 30.0, 30.0, id="reduced by somebody, who says so"),
        pytest.param(SLOW, 1, 120.0, 120.0, id="a frame more than the table knows"),
        pytest.param(SLOW, -1, 120.0, 120.0, id="a frame less"),
        pytest.param((SLOW[0], "somebody_else"), 0, 120.0, 120.0, id="no clip of CMU's"),
    ],
)
def test_cmu_true_rate(clip: tuple[int, str], extra: int, header: float, expected: float):
    frames, name = clip
    # The table counts frames without the artificial first one.
    mended = cmu.repair(cmu_source(frames + extra + 1, name=name, fps=header))
    assert (mended.fps, len(mended)) == (expected, frames + extra)
    assert cmu.repair(cmu_source(frames + extra, name=name, fps=header, t_pose_first=False)).fps == expected


# --- there and back


@pytest.mark.parametrize("rig", ["cmu", "bandai", "unreal 5", "japanese"])
def test_there_and_back(tmp_path: Path, rig: str, rng: np.random.Generator):
    nodes, _ = RIGS[rig]
    zero = accad_zero() if rig == "accad" else t_pose()
    source = read_text(tmp_path, bvh_text(nodes, zero=zero, unit=0.01, stretch=True, order="YXZ"))
    recording = retarget(source, None)
    motion = recording.motion
    assert recording.fit is not None
    recording.fit.write(motion, tmp_path / "back.bvh")
    lines, back = ((tmp_path / name).read_text().splitlines() for name in ("take.bvh", "back.bvh"))
    start = lines.index("MOTION")
    assert back[: start + 2] == lines[: start + 2]
    again = read_bvh(tmp_path / "back.bvh")
    assert isinstance(again.file, BvhFile)
    assert isinstance(source.file, BvhFile)
    # Written with as many decimals as the file has, twelve at most.
    np.testing.assert_allclose(again.file.values, source.file.values, rtol=0, atol=1e-11)
    q = motion.q @ rotvec_to_rotmat(0.3 * rng.standard_normal((len(motion), NUM_JOINTS, 3)))
    path = motion.root + 0.2 * rng.standard_normal(motion.root.shape)
    changed = Motion.from_rotations(motion.skeleton, motion.fps, path, q)
    recording.fit.write(changed, tmp_path / "back.bvh")
    again = retarget(read_bvh(tmp_path / "back.bvh"), None).motion
    legs = [joint_index(f"{side}_{part}") for side in ("left", "right") for part in ("hip", "knee", "ankle", "foot")]
    # Feet land where ours do, to the digits of the file: a micrometre and 1e-6 degrees.
    np.testing.assert_allclose(again.joints[:, legs], changed.joints[:, legs], rtol=0, atol=1e-5)


def test_joints_that_are_not_ours_keep_their_motion_and_then_hold_it(tmp_path: Path, rng: np.random.Generator):
    hand = next(node for node in rig_of(MIXAMO) if node.name == "LeftHand")
    finger = Node("LeftHandIndex1", "LeftHand", joint_index("left_elbow"), hand.at + np.array([0.1, 0.0, 0.0]))
    source = read_text(tmp_path, bvh_text([*rig_of(MIXAMO), finger], zero=t_pose()))
    recording = retarget(source, None)
    assert recording.fit is not None
    motion = Motion.concatenate([recording.motion, recording.motion])
    q = motion.q @ rotvec_to_rotmat(0.3 * rng.standard_normal((len(motion), NUM_JOINTS, 3)))
    back = recording.fit.back(Motion.from_rotations(motion.skeleton, motion.fps, motion.root, q))
    j, count = source.rig.names.index("LeftHandIndex1"), len(source)
    np.testing.assert_array_equal(back.rotations[:count, j], source.rotations[:, j])
    np.testing.assert_array_equal(back.rotations[count:, j], np.tile(source.rotations[-1:, j], (count, 1, 1)))
    assert np.abs(back.rotations[:count] - source.rotations).max() > 0.1


def test_the_rigs_own_body(tmp_path: Path):
    # Every bone is longer or shorter in its own way; on the rig's own body our joints are the file's.
    source = read_text(tmp_path, bvh_text(rig_of(MIXAMO), zero=t_pose(), unit=0.01, stretch=True))
    recording = retarget(source, None)
    positions = source.positions(source.global_rotations())
    ours = [joint_index(joint) for joint in MIXAMO]
    theirs = [source.rig.names.index(name) for name in MIXAMO.values()]
    np.testing.assert_allclose(
        recording.motion.joints[:, ours], 0.01 * positions[:, theirs] @ Y_TO_Z_UP.T, rtol=0, atol=1e-6
    )
    skeleton = recording.motion.skeleton
    span, adult = (body.rest[15, 1] - body.rest[[10, 11], 1].mean() for body in (skeleton, SKELETON))
    assert skeleton.masses.sum() == pytest.approx(70.0 * (span / adult) ** 2)


@pytest.mark.parametrize("unit", [1.0, 0.01, 0.0254, 0.001, 0.2])
def test_the_unit_is_told_by_the_legs(tmp_path: Path, unit: float):
    # In a unit that nobody uses, such as the last, the person has an adult's legs, as this one does.
    fit = retarget(read_text(tmp_path, bvh_text(rig_of(MIXAMO), zero=t_pose(), unit=unit)), None).fit
    assert fit is not None
    assert fit.scale == pytest.approx(unit, rel=1e-6)


def test_names_in_another_encoding_come_back_byte_by_byte(tmp_path: Path):
    text = bvh_text([*rig_of(MIXAMO), Node("PROP", "Hips", 0, np.zeros(3))], zero=t_pose())
    (tmp_path / "take.bvh").write_bytes(text.encode().replace(b"PROP", "剣".encode("shift-jis")))
    recording = retarget(read_bvh(tmp_path / "take.bvh"), None)
    assert recording.fit is not None
    recording.fit.write(recording.motion, tmp_path / "back.bvh")
    assert b"JOINT " + "剣".encode("shift-jis") in (tmp_path / "back.bvh").read_bytes()


# --- by structure


def anonymous(source: RigMotion) -> RigMotion:
    names = tuple(f"bone{k}_end" if name.endswith("_end") else f"bone{k}" for k, name in enumerate(source.rig.names))
    return replace(source, rig=Rig(names, source.rig.parents, source.rig.offsets))


@pytest.mark.parametrize(
    ("rig", "up"),
    [
        ("rigify's whole deform rig", "y"),
        ("daz genesis 8", "y"),
        ("3ds max biped", "y"),
        ("japanese", "y"),
        ("bandai", "y"),
        ("unreal 5", "z"),
    ],
)
def test_a_person_is_found_without_names(tmp_path: Path, rig: str, up: str):
    # CMU's lost bones and ACCAD's spine leave no bones to tell.
    nodes, _ = RIGS[rig]
    source = read_text(tmp_path, bvh_text(nodes, zero=standing(t_pose(), up), up=up, unit=0.01))
    named, found = match_source(source), match_source(anonymous(source))
    limbs_of_ours = [j for j, name in enumerate(JOINTS) if "_" in name]
    assert [found.positions[j] for j in limbs_of_ours] == [named.positions[j] for j in limbs_of_ours]
    assert found.rig_map.name == "by structure"
    recording = retarget(anonymous(source), SKELETON)
    assert_same_person(
        recording.motion, but=NOT_CARRIED.get(rig, set()) | {"spine1", "spine2", "spine3", "neck", "head"}
    )


PROPS = {
    "a sword": ["sword"],
    "fingers": ["fingers"],
    "fingers and hair": ["fingers", "hair"],
    "fingers and a short stick": ["fingers", "stick"],
    "a long pole": ["pole"],
}


@pytest.mark.parametrize("props", PROPS)
def test_things_on_a_person_are_no_limbs(tmp_path: Path, props: str):
    nodes = rig_of(MIXAMO)
    at = {node.name: node for node in nodes}

    def chain(name: str, above: str, *steps: tuple[float, float, float]) -> None:
        turns, place, parent = at[above].turns, at[above].at, above
        for k, step in enumerate(steps):
            place = place + np.array(step)
            nodes.append(Node(f"{name}{k}", parent, turns, place))
            parent = f"{name}{k}"

    if "fingers" in PROPS[props]:
        for side, x in (("Left", 1.0), ("Right", -1.0)):
            for finger in ("Index", "Middle", "Ring"):
                chain(f"{side}{finger}", f"{side}Hand", *[(0.04 * x, 0.0, 0.0)] * 3)
    if "hair" in PROPS[props]:
        for side, x in (("Left", 1.0), ("Right", -1.0)):
            chain(f"Hair{side}", "Head", (0.1 * x, 0.0, -0.1), *[(0.0, -0.15, 0.0)] * 3)
    in_hand = {"sword": [(-0.05, 0.0, 0.0), (0.0, 0.8, 0.0)], "stick": [(0.0, 0.0, 0.1)], "pole": [(0.0, 0.0, 0.8)]}
    for name, steps in in_hand.items():
        if name in PROPS[props]:
            chain("Prop", "RightHand", *steps)
    source = read_text(tmp_path, bvh_text(nodes, zero=t_pose()))
    named, found = match_source(source), match_source(anonymous(source))
    limbs_of_ours = [j for j, name in enumerate(JOINTS) if "_" in name]
    assert [found.positions[j] for j in limbs_of_ours] == [named.positions[j] for j in limbs_of_ours]


@pytest.mark.parametrize(
    ("swaps", "message"),
    [
        ([("left", "right")], r"left and right are swapped: left_hip \(RightUpLeg\)"),
        (
            [("left_shoulder", "right_shoulder"), ("left_elbow", "right_elbow"), ("left_wrist", "right_wrist")],
            "the arms are swapped",
        ),
        ([("left_knee", "left_ankle")], r"left_ankle \(LeftLeg\) does not hang on left_knee \(LeftFoot\)"),
        ([("hip", "shoulder"), ("knee", "elbow"), ("ankle", "wrist")], "it stands on its head"),
    ],
)
def test_maps_of_nobody_are_refused_with_the_reason(tmp_path: Path, swaps: list[tuple[str, str]], message: str):
    def swapped(joint: str) -> str:
        for a, b in swaps:
            if a in joint or b in joint:
                return joint.replace(a, b) if a in joint else joint.replace(b, a)
        return joint

    names = {joint: MIXAMO[swapped(joint)] for joint in MIXAMO}
    if "hip" in swaps[0]:
        names = {joint: name for joint, name in names.items() if not joint.endswith(("foot", "collar"))}
    (tmp_path / "map.toml").write_text(toml(names))
    source = read_text(tmp_path, bvh_text(rig_of(MIXAMO), zero=t_pose()))
    with pytest.raises(ValueError, match=message):
        retarget(source, SKELETON, rig_map=read_rig_map(tmp_path / "map.toml"))


def test_a_recording_with_crossed_legs_is_not_refused(tmp_path: Path):
    # The toes look backwards throughout, as where a solver flipped the feet: the zero pose tells left from right, not
    # they.
    q = CLIP.q.copy()
    q[:, 1:3] = q[:, 1:3] @ rotvec_to_rotmat(np.array([0.0, np.pi, 0.0]))
    backwards = Motion.from_rotations(SKELETON, CLIP.fps, CLIP.root, q)
    source = read_text(tmp_path, bvh_text(rig_of(MIXAMO), zero=t_pose(), motion=backwards))
    assert match_source(source).rig_map.name == "mixamo"


def test_the_command_writes_a_map_that_can_be_used(tmp_path: Path, capsys: pytest.CaptureFixture):
    source = read_text(tmp_path, bvh_text(mmd(), zero=t_pose()))
    lines = (tmp_path / "take.bvh").read_text().splitlines()
    odd = ["_".join(line.replace("左", "A").replace("右", "B").split("_")) for line in lines]
    (tmp_path / "odd.bvh").write_text("\n".join(odd) + "\n")
    assert main(["rig", str(tmp_path / "odd.bvh"), "--save", str(tmp_path / "map.toml")]) == 0
    assert "| left_hip | A足 |" in capsys.readouterr().out
    saved = read_rig_map(tmp_path / "map.toml")
    assert saved.joints["right_wrist"] == "B手首"
    assert main(["rig", str(tmp_path / "odd.bvh"), "--rig", str(tmp_path / "map.toml")]) == 0
    assert "a person of 1." in capsys.readouterr().out
    motion = retarget(read_bvh(tmp_path / "odd.bvh"), SKELETON, rig_map=saved).motion
    np.testing.assert_allclose(motion.joints[:, 7:12], on_ours(source).joints[:, 7:12], rtol=0, atol=0.02)


def test_the_command_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture):
    names = {joint: name for joint, name in MIXAMO.items() if not joint.startswith("right_") or "hip" in joint}
    read_text(tmp_path, bvh_text(rig_of(names), zero=t_pose()))
    assert main(["rig", str(tmp_path / "take.bvh")]) == 2
    assert "without a match for right_knee" in capsys.readouterr().err
    assert main(["rig", str(tmp_path / "take.bvh"), "--save", str(tmp_path / "map.toml")]) == 0
    text = (tmp_path / "map.toml").read_text()
    assert '# right_knee = "" # needed' in text
    assert '# right_foot = "" # may be left out' in text
    with pytest.raises(ValueError, match="the map says nothing of right_knee"):
        read_rig_map(tmp_path / "map.toml")


# --- what is no person, and people with things on them


def on_all_fours() -> dict[str, np.ndarray]:
    """Places of our joints on a dog: a level spine, and front legs in place of arms."""
    at = dict(zip(JOINTS, SKELETON.rest - SKELETON.rest[0] + np.array([0.0, 0.8, 0.0]), strict=True))
    for k, joint in enumerate(("spine1", "spine2", "spine3", "neck", "head")):
        at[joint] = np.array([0.0, 0.8, 0.2 * (k + 1)])
    for side, x in (("left", 0.15), ("right", -0.15)):
        for k, part in enumerate(("collar", "shoulder", "elbow", "wrist")):
            at[f"{side}_{part}"] = np.array([x, 0.9 - 0.25 * k, 0.6])
    return at


@pytest.mark.parametrize("names", ["known", "unknown"])
def test_quadrupeds_are_refused_with_the_reason(tmp_path: Path, names: str):
    at = on_all_fours()
    nodes = [replace(node, at=at[JOINTS[node.turns]]) for node in rig_of(MIXAMO)]
    source = read_text(tmp_path, bvh_text(nodes, zero=t_pose()))
    with pytest.raises(
        ValueError, match=r"is not a person: .*four legs" if names == "known" else "none of the known rigs"
    ):
        retarget(source if names == "known" else anonymous(source), None)


@pytest.mark.parametrize(
    ("joint", "factor", "message"), [("wrist", 4.0, "arms"), ("ankle", 0.1, "legs"), ("elbow", 0.1, "arms")]
)
def test_no_human_proportions_are_refused_with_the_reason(tmp_path: Path, joint: str, factor: float, message: str):
    nodes = rig_of(MIXAMO)
    at = {node.name: node.at for node in nodes}
    wrong = [JOINTS[node.turns].endswith(joint) for node in nodes]
    nodes = [
        replace(node, at=at[node.parent] + factor * (node.at - at[node.parent])) if is_wrong else node
        for node, is_wrong in zip(nodes, wrong, strict=True)
    ]
    with pytest.raises(ValueError, match=f"is not a person: .*{message}"):
        on_ours(read_text(tmp_path, bvh_text(nodes, zero=t_pose())))


def test_a_hat_makes_nobody_taller(tmp_path: Path):
    nodes = rig_of(MIXAMO)
    head = next(node for node in nodes if node.name == "Head")
    hat = [Node("Hat", "Head", head.turns, head.at + np.array([0.0, 0.25, 0.0]))]
    heights = [
        retarget(anonymous(read_text(tmp_path, bvh_text([*nodes, *more], zero=t_pose()))), None).motion.skeleton.height
        for more in ([], hat)
    ]
    assert heights[1] == pytest.approx(heights[0], abs=0.01)


def test_seventeen_joints_without_feet_and_names(tmp_path: Path):
    names = {
        joint: name for joint, name in MIXAMO.items() if not joint.endswith(("foot", "collar")) and joint != "neck"
    }
    # The tips of the shins point down.
    text = bvh_text(rig_of(names), zero=t_pose()).replace("OFFSET 0 0 0.1", "OFFSET 0 -0.1 0")
    source = read_text(tmp_path, text)
    motion = retarget(anonymous(source), SKELETON).motion
    limbs = [i for i, j in enumerate(BONES) if JOINTS[j].rpartition("_")[2] in ("knee", "ankle", "elbow", "wrist")]
    np.testing.assert_allclose(
        directions(motion.joints)[:, limbs], directions(CLIP.joints)[:, limbs], rtol=0, atol=1e-6
    )
