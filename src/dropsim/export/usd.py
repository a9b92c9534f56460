"""USD: a stage with UsdSkel skeletons, skins and animations, z up, for Omniverse, Houdini, Maya and Blender."""

# pxr's modules fill themselves when they are loaded, where pyright cannot look.
# pyright: reportAttributeAccessIssue=false

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from dropsim.body.mesh import Body
from dropsim.body.skeleton import JOINTS, NUM_JOINTS, PARENTS
from dropsim.export.people import (
    R_ZUP_YUP,
    Rig,
    facts,
    linear_color,
    named_objects,
    named_people,
    object_color,
    quaternions_xyzw,
)
from dropsim.export.stage import Stage
from dropsim.files.atomic import atomic_path
from dropsim.motion.motion import Motion
from dropsim.scene.element import Solid

if TYPE_CHECKING:
    import pxr.Usd
    import pxr.UsdGeom
    import pxr.UsdSkel
    import pxr.Vt

REACH = 0.5
"""Distance by which the body may stand out from its joints, for the stage's bounds [m]."""

_PATHS = [JOINTS[0]]
for _joint, _parent in zip(JOINTS[1:], PARENTS[1:], strict=True):
    _PATHS.append(f"{_PATHS[_parent]}/{_joint}")


def write_usd(stage: Stage, path: Path, *, body: Body | None, seed: int | None) -> None:
    """Write people as skinned meshes and objects as meshes, z up and in metres, with a time code for each frame.

    A name in .usda makes text, .usdc and .usd make binary. The skin is bound in the T-pose, facing -y. Joints that a
    simulator solved off the bones are written as their rotations have them.
    """
    try:
        from pxr import Tf, Usd, UsdGeom
    except ImportError as error:
        raise ValueError("writing USD needs usd-core: run `pip install 'dropsim[export]'`") from error
    # In memory, so that no registry of open files knows the temporary name.
    layer = Usd.Stage.CreateInMemory()
    UsdGeom.SetStageUpAxis(layer, UsdGeom.Tokens.z)
    UsdGeom.SetStageMetersPerUnit(layer, 1.0)
    layer.SetTimeCodesPerSecond(stage.fps)
    layer.SetFramesPerSecond(stage.fps)
    layer.SetStartTimeCode(0)
    layer.SetEndTimeCode(len(stage) - 1)
    layer.SetDefaultPrim(UsdGeom.Xform.Define(layer, "/World").GetPrim())
    for name, motion, rig in named_people(stage, body):
        _add_person(layer, motion, rig, f"/World/{name}", seed)
    for name, solid in named_objects(stage.objects):
        _add_object(layer, solid, f"/World/{name}")
    with atomic_path(path) as temporary:
        # USD chooses by the ending, in lower case; a reader of .usd looks inside.
        written = temporary.with_name("stage.usda" if path.suffix.lower() == ".usda" else "stage.usdc")
        try:
            layer.GetRootLayer().Export(str(written))
        except Tf.ErrorException as error:
            raise OSError(f"{path}: USD could not write it: {error}") from error
        written.rename(temporary)


def _add_mesh(stage: "pxr.Usd.Stage", path: str, points: np.ndarray, faces: np.ndarray) -> "pxr.UsdGeom.Mesh":
    """Add triangles."""
    from pxr import UsdGeom, Vt

    mesh, points = UsdGeom.Mesh.Define(stage, path), np.ascontiguousarray(points.astype(np.float32))
    mesh.CreatePointsAttr(Vt.Vec3fArray.FromNumpy(points))
    mesh.CreateFaceVertexCountsAttr(Vt.IntArray.FromNumpy(np.full(len(faces), 3, dtype=np.int32)))
    mesh.CreateFaceVertexIndicesAttr(Vt.IntArray.FromNumpy(np.ascontiguousarray(faces.reshape(-1).astype(np.int32))))
    mesh.CreateSubdivisionSchemeAttr(UsdGeom.Tokens.none)
    mesh.CreateExtentAttr(Vt.Vec3fArray.FromNumpy(np.stack((points.min(0), points.max(0)))))
    return mesh


def _add_object(stage: "pxr.Usd.Stage", solid: Solid, path: str) -> None:
    """Add a mesh; one that moves has a matrix for each frame."""
    from pxr import Gf, UsdGeom

    mesh = _add_mesh(stage, path, solid.vertices, solid.faces)
    mesh.CreateDisplayColorAttr([Gf.Vec3f(*linear_color(object_color(solid.name)))])
    matrices, lasting = np.tile(np.eye(4), (len(solid.centre), 1, 1)), solid.at_all_times()
    matrices[:, :3, :3], matrices[:, :3, 3] = lasting.rotation, lasting.centre
    place = mesh.AddTransformOp()
    still = np.ptp(matrices, axis=0).max() < 1e-9
    for frame, matrix in enumerate(matrices[:1] if still else matrices):
        # USD's matrices act on row vectors.
        place.Set(Gf.Matrix4d(matrix.T.tolist()), *(() if still else (frame,)))
    if not solid.there.all():
        seen = mesh.CreateVisibilityAttr()
        for frame, there in enumerate(solid.there.tolist()):
            seen.Set(UsdGeom.Tokens.inherited if there else UsdGeom.Tokens.invisible, frame)


def _add_person(stage: "pxr.Usd.Stage", motion: Motion, rig: Rig, root: str, seed: int | None) -> None:
    """Add a skeleton, its animation and the skinned mesh below one prim."""
    from pxr import UsdSkel, Vt

    person = UsdSkel.Root.Define(stage, root)
    for key, value in facts(motion, seed).items():
        # Custom data has no lists of dictionaries.
        plain = {str(number): item for number, item in enumerate(value)} if isinstance(value, list) else value
        person.GetPrim().SetCustomDataByKey(f"dropsim:{key}", plain)
    joints = motion.joints.reshape(-1, 3)
    extent = np.stack((joints.min(0) - REACH, joints.max(0) + REACH)).astype(np.float32)
    person.CreateExtentAttr(Vt.Vec3fArray.FromNumpy(extent))
    bind = np.tile(np.eye(4), (NUM_JOINTS, 1, 1))
    bind[:, :3, :3], bind[:, :3, 3] = R_ZUP_YUP, rig.bind @ R_ZUP_YUP.T
    above = [np.eye(4) if parent < 0 else bind[parent] for parent in PARENTS]
    local = np.linalg.inv(above) @ bind
    skeleton = UsdSkel.Skeleton.Define(stage, f"{root}/skeleton")
    skeleton.CreateJointsAttr(_PATHS)
    skeleton.CreateJointNamesAttr(JOINTS)
    skeleton.CreateBindTransformsAttr(_matrices(bind))
    skeleton.CreateRestTransformsAttr(_matrices(local))
    binding = UsdSkel.BindingAPI.Apply(skeleton.GetPrim())
    binding.CreateAnimationSourceRel().SetTargets([_animation(stage, motion, f"{root}/animation", local).GetPath()])
    _add_skin(stage, rig, f"{root}/body", skeleton)


def _matrices(matrices: Float[np.ndarray, "n 4 4"]) -> "pxr.Vt.Matrix4dArray":
    from pxr import Gf, Vt

    # USD's matrices act on row vectors.
    return Vt.Matrix4dArray([Gf.Matrix4d(matrix.T.tolist()) for matrix in matrices])


def _animation(
    stage: "pxr.Usd.Stage", motion: Motion, path: str, local: Float[np.ndarray, "22 4 4"]
) -> "pxr.UsdSkel.Animation":
    """Add every joint's rotation and the pelvis' path, a time sample for each frame."""
    from pxr import UsdSkel, Vt

    animation = UsdSkel.Animation.Define(stage, path)
    animation.CreateJointsAttr(_PATHS)
    translations, rotations = animation.CreateTranslationsAttr(), animation.CreateRotationsAttr()
    scales = animation.CreateScalesAttr()
    ones = Vt.Vec3hArray.FromNumpy(np.ones((NUM_JOINTS, 3), dtype=np.float16))
    places, turns = np.repeat(local[None, :, :3, 3], len(motion), axis=0), quaternions_xyzw(motion.q)
    places[:, 0] = motion.root
    for frame in range(len(motion)):
        translations.Set(Vt.Vec3fArray.FromNumpy(places[frame].astype(np.float32)), frame)
        # The layout in memory is x y z w.
        rotations.Set(Vt.QuatfArray.FromNumpy(turns[frame].astype(np.float32)), frame)
        # At every frame too: some readers want as many samples of all three.
        scales.Set(ones, frame)
    return animation


def _add_skin(stage: "pxr.Usd.Stage", rig: Rig, path: str, skeleton: "pxr.UsdSkel.Skeleton") -> None:
    """Add the mesh that a skeleton moves."""
    from pxr import Gf, UsdGeom, UsdSkel, Vt

    mesh = _add_mesh(stage, path, rig.vertices @ R_ZUP_YUP.T, rig.faces)
    normals = np.ascontiguousarray((rig.normals @ R_ZUP_YUP.T).astype(np.float32))
    mesh.CreateNormalsAttr(Vt.Vec3fArray.FromNumpy(normals))
    mesh.SetNormalsInterpolation(UsdGeom.Tokens.vertex)
    # A colour for each face.
    colors = np.concatenate([np.tile(linear_color(piece.color), (len(piece.faces), 1)) for piece in rig.pieces])
    mesh.CreateDisplayColorPrimvar(UsdGeom.Tokens.uniform).Set(Vt.Vec3fArray.FromNumpy(colors.astype(np.float32)))
    binding = UsdSkel.BindingAPI.Apply(mesh.GetPrim())
    binding.CreateSkeletonRel().SetTargets([skeleton.GetPath()])
    binding.CreateGeomBindTransformAttr(Gf.Matrix4d(1))
    joints, weights = rig.strongest()
    binding.CreateJointIndicesPrimvar(False, 4).Set(Vt.IntArray.FromNumpy(joints.reshape(-1).astype(np.int32)))
    binding.CreateJointWeightsPrimvar(False, 4).Set(Vt.FloatArray.FromNumpy(weights.reshape(-1)))
