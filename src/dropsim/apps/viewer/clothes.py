"""The clothed person of the films as meshes of one colour each, for viser knows no colours of vertices."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from dropsim.body.mesh import Body
from dropsim.body.skeleton import NUM_JOINTS, Skeleton
from dropsim.render.meshes import outfit
from dropsim.render.snapshot import SHIRTS, Figure


@dataclass(frozen=True, eq=False)
class Part:
    """A piece of skin or clothing."""

    vertices: Float[np.ndarray, "v 3"]
    """Rest pose [m]."""
    faces: Int[np.ndarray, "f 3"]
    blend: Float[np.ndarray, "v j"]
    """Shares of the joints that move it."""
    joints: Int[np.ndarray, "j"]
    color: tuple[int, int, int] = (0, 0, 0)

    @classmethod
    def of(cls, vertices: np.ndarray, faces: np.ndarray, blend: np.ndarray, color: np.ndarray) -> "Part":
        """Keep the vertices and joints that a piece needs."""
        used = np.unique(faces)
        number = np.zeros(len(vertices), dtype=np.int64)
        number[used] = np.arange(len(used))
        # The browser moves a vertex by four joints, and expects shares that sum to one; new vertices on an edge may have more.
        shares = np.where(blend[used] >= np.sort(blend[used], -1)[:, -4:-3], blend[used], 0.0)
        joints = np.flatnonzero(shares.any(0))
        r, g, b = (255 * color).round().astype(int).tolist()
        return cls(vertices[used], number[faces], shares[:, joints] / shares.sum(-1, keepdims=True), joints, (r, g, b))


def dressed(body: Body, number: int) -> list[Part]:
    """Return a person's shirt, trousers, skin and hair; people of other numbers have other shirts."""
    skeleton = body.skeleton
    shirt, trousers, skin, hair, ends = np.split(outfit(_at_rest(skeleton, number), plain=False), (3, 6, 9, 12))
    ankles, waist, neck, hairline, sleeve, head = ends

    def above(name: str, at: Float[np.ndarray, "v 3"]) -> Float[np.ndarray, "v"]:
        """How far vertices are inside a piece [m], as the films' `_dress` has it."""
        x, y, z = at.T
        collar = y - (neck - 0.028 - 0.35 * np.clip(z - head + 0.03, 0.0, 0.1) + 6 * x * x)
        fields = {
            "hair": np.minimum(np.minimum(y - hairline - 0.75 * (z - head), collar), 0.2 - abs(x)),
            "skin": np.maximum(abs(x) - sleeve, collar), "shirt": y - waist, "trousers": y - ankles,
        }  # fmt: skip
        return fields[name]

    vertices, faces, blend = body.vertices, body.faces, body.blend
    pieces = dict[str, np.ndarray]()
    for name in ("hair", "skin", "shirt", "trousers"):
        vertices, blend, pieces[name], faces = cut(vertices, blend, faces, above(name, vertices))
    pieces["skin"] = np.concatenate((pieces["skin"], faces))  # the feet are left
    colors = {"hair": hair, "skin": skin, "shirt": shirt, "trousers": trousers}
    return [Part.of(vertices, found, blend, colors[name]) for name, found in pieces.items()]


def cut(vertices: np.ndarray, blend: np.ndarray, faces: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, ...]:
    """Cut a mesh where values at its vertices change sign; return vertices and blend, with new ones at the end, and both sides' faces."""
    positive = values > 0
    count = positive[faces].sum(1)
    sides = {True: [faces[count == 3]], False: [faces[count == 0]]}
    places, shares, first = [vertices], [blend], len(vertices)
    for lone_is_positive, mixed in ((True, faces[count == 1]), (False, faces[count == 2])):
        # Turn each triangle so that the vertex which is alone on its side comes first.
        lone = (positive[mixed] == lone_is_positive).argmax(1)
        a, b, c = (mixed[np.arange(len(mixed)), (lone + k) % 3] for k in range(3))
        middles = []
        for other in (b, c):
            t = (values[a] / (values[a] - values[other]))[:, None]
            places.append((1 - t) * vertices[a] + t * vertices[other])
            shares.append((1 - t) * blend[a] + t * blend[other])
            middles.append(np.arange(first, first + len(mixed)))
            first += len(mixed)
        ab, ac = middles
        sides[lone_is_positive].append(np.stack((a, ab, ac), 1))
        sides[not lone_is_positive] += [np.stack((ab, b, c), 1), np.stack((ab, c, ac), 1)]
    return np.concatenate(places), np.concatenate(shares), np.concatenate(sides[True]), np.concatenate(sides[False])


def _at_rest(skeleton: Skeleton, number: int) -> Figure:
    turns = np.broadcast_to(np.eye(3), (NUM_JOINTS, 3, 3))
    return Figure(skeleton, skeleton.rest, turns, SHIRTS[number % len(SHIRTS)])
