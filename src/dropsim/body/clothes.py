"""Clothes: the pieces of the body, which are hair, skin, shirt and trousers, and their colours."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from dropsim.body.mesh import Body, shipped_arrays
from dropsim.body.rotations import normalize
from dropsim.body.skeleton import NUM_JOINTS

Color = tuple[float, float, float]
TROUSERS, SKIN, HAIR = (0.33, 0.35, 0.42), (0.92, 0.72, 0.59), (0.27, 0.19, 0.15)
SHIRTS: tuple[Color, ...] = (
    (0.66, 0.74, 0.82),
    (0.78, 0.40, 0.34),
    (0.50, 0.68, 0.52),
    (0.62, 0.52, 0.78),
    (0.86, 0.74, 0.38),
    (0.36, 0.42, 0.58),
)
"""Colours, one for each person; after the last they begin again."""
JOINTS_A_VERTEX = 4
"""Number of joints by which browsers and engines move a vertex."""


@dataclass(frozen=True, eq=False)
class Piece:
    """A part of the body in one colour."""

    name: str
    color: Color
    faces: Int[np.ndarray, "f 3"]


@dataclass(frozen=True, eq=False)
class Part:
    """A piece as a mesh of its own, with the vertices and joints that it needs."""

    vertices: Float[np.ndarray, "v 3"]
    faces: Int[np.ndarray, "f 3"]
    blend: Float[np.ndarray, "v j"]
    """Shares of the joints that move each vertex."""
    joints: Int[np.ndarray, "j"]
    color: tuple[int, int, int]
    """sRGB in [0, 255]."""

    @classmethod
    def of(cls, piece: Piece, vertices: Float[np.ndarray, "v 3"], blend: Float[np.ndarray, "v 22"]) -> "Part":
        """Take a piece out of a mesh."""
        used, faces = np.unique(piece.faces, return_inverse=True)
        joints = np.flatnonzero(blend[used].any(0))
        r, g, b = (round(255 * channel) for channel in piece.color)
        return cls(vertices[used], faces.reshape(-1, 3), blend[used][:, joints], joints, (r, g, b))


@dataclass(frozen=True, eq=False)
class Dressed:
    """A body with new vertices along the seams, and its pieces: hair, skin, shirt and trousers."""

    vertices: Float[np.ndarray, "v 3"]
    """Rest pose [m]."""
    normals: Float[np.ndarray, "v 3"]
    """Normals of the whole body, so that seams do not show in the shading."""
    blend: Float[np.ndarray, "v 22"]
    """Shares of the joints that move each vertex, of four joints at most; they sum to one."""
    pieces: tuple[Piece, ...]

    @property
    def parts(self) -> list[Part]:
        """The pieces as meshes of their own."""
        return [Part.of(piece, self.vertices, self.blend) for piece in self.pieces]


def dressed(body: Body, number: int) -> Dressed:
    """Dress the shipped body, fitted to anybody, as the films do; people of other numbers have other shirts."""
    colors = {"hair": HAIR, "skin": SKIN, "shirt": SHIRTS[number % len(SHIRTS)], "trousers": TROUSERS}
    arrays = shipped_arrays()
    # Place, normal and shares of the joints of each vertex; those along the seams lie inside triangles.
    rows = np.concatenate((body.vertices, body.normals(body.vertices), body.blend), 1)
    seams = np.einsum("sk,skn->sn", arrays["seam_shares"], rows[arrays["seam_corners"]])
    vertices, normals, blend = np.split(np.concatenate((rows, seams)), (3, 6), axis=1)
    least = np.partition(blend, NUM_JOINTS - JOINTS_A_VERTEX, axis=-1)[:, NUM_JOINTS - JOINTS_A_VERTEX, None]
    blend = np.where(blend >= least, blend, 0.0)
    pieces = tuple(Piece(name, color, arrays[name].astype(np.int64)) for name, color in colors.items())
    return Dressed(vertices, normalize(normals), blend / blend.sum(-1, keepdims=True), pieces)
