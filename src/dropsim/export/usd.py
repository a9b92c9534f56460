"""USD: a stage with UsdSkel skeletons, skins and animations, z up as our world; Omniverse, Houdini, Maya and Blender read it."""

# pxr's modules fill themselves when they are loaded, where pyright cannot look.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Sequence
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
    names,
    object_color,
    object_names,
    quaternions_xyzw,
)
from dropsim.files.atomic import atomic_path
from dropsim.motion.motion import Motion
from dropsim.scene.rollout import SolidTrack

if TYPE_CHECKING:
    import pxr.Usd
    import pxr.UsdSkel
    import pxr.Vt

REACH = 0.5
"""How far the body may stand out from its joints, for the stage's bounds [m]."""

_PATHS = [JOINTS[0]]
for _joint, _parent in zip(JOINTS[1:], PARENTS[1:], strict=True):
    _PATHS.append(f"{_PATHS[_parent]}/{_joint}")


def write_usd(
    people: Sequence[Motion],
    path: Path,
    *,
    body: Body | None = None,
    seed: int | None = None,
    objects: Sequence[SolidTrack] = (),
) -> None:
    """Write people as skinned meshes and objects as meshes, z up and in metres, with a time code for each frame.

    A name in .usda makes text, .usdc and .usd make binary. The skin is bound in the T-pose, facing -y. Joints that a
    simulator solved off the bones are written as their rotations have them.
    """
    try:
        from pxr import Tf, Usd, UsdGeom
    except ImportError as error:
        raise ValueError("writing USD needs usd-core: run `pip install 'dropsim[export]'`") from error
    # In memory, so that no registry of open files knows the temporary name.
    stage = Usd.Stage.CreateInMemory()
    UsdGeom.SetStageUpAxis(stage, UsdGeom.Tokens.z)
    UsdGeom.SetStageMetersPerUnit(stage, 1.0)
    stage.SetTimeCodesPerSecond(people[0].fps)
    stage.SetFramesPerSecond(people[0].fps)
    stage.SetStartTimeCode(0)
    stage.SetEndTimeCode(max(map(len, people)) - 1)
    stage.SetDefaultPrim(UsdGeom.Xform.Define(stage, "/World").GetPrim())
    for number, (name, motion) in enumerate(zip(names(people), people, strict=True)):
        _add_person(stage, motion, Rig.of(motion, body, number), f"/World/{name}", seed)
    for name, track in zip(object_names(objects), objects, strict=True):
        _add_object(stage, track, f"/World/{name}")
    with atomic_path(path) as temporary:
        # USD chooses by the ending, in lower case; a reader of .usd looks inside.
        written = temporary.with_name("stage.usda" if path.suffix.lower() == ".usda" else "stage.usdc")
        try:
            stage.GetRootLayer().Export(str(written))
        except Tf.ErrorException as error:
            raise OSError(f"{path}: USD could not write it: {error}") from error
        written.rename(temporary)


def _add_object(stage: "pxr.Usd.Stage", track: SolidTrack, path: str) -> None:
    """Add a mesh; one that moves has a matrix for each frame."""
    from pxr import Gf, UsdGeom, Vt

    mesh, points = UsdGeom.Mesh.Define(stage, path), np.ascontiguousarray(track.vertices.astype(np.float32))
    mesh.CreatePointsAttr(Vt.Vec3fArray.FromNumpy(points))
    mesh.CreateFaceVertexCountsAttr(Vt.IntArray.FromNumpy(np.full(len(track.faces), 3, dtype=np.int32)))
    mesh.CreateFaceVertexIndicesAttr(
        Vt.IntArray.FromNumpy(np.ascontiguousarray(track.faces.reshape(-1).astype(np.int32)))
    )
    mesh.CreateSubdivisionSchemeAttr(UsdGeom.Tokens.none)
    mesh.CreateExtentAttr(Vt.Vec3fArray.FromNumpy(np.stack((points.min(0), points.max(0)))))
    mesh.CreateDisplayColorAttr([Gf.Vec3f(*linear_color(object_color(track.name)))])
    matrices, lasting = np.tile(np.eye(4), (len(track.centres), 1, 1)), track.at_all_times()
    matrices[:, :3, :3], matrices[:, :3, 3] = lasting.rotations, lasting.centres
    place = mesh.AddTransformOp()
    still = np.ptp(matrices, axis=0).max() < 1e-9
    for frame, matrix in enumerate(matrices[:1] if still else matrices):
        # USD's matrices act on row vectors.
        place.Set(Gf.Matrix4d(matrix.T.tolist()), *(() if still else (frame,)))
    if not track.there.all():
        seen = mesh.CreateVisibilityAttr()
        for frame, there in enumerate(track.there.tolist()):
            seen.Set(UsdGeom.Tokens.inherited if there else UsdGeom.Tokens.invisible, frame)


def _add_person(stage: "pxr.Usd.Stage", motion: Motion, rig: Rig, root: str, seed: int | None) -> None:
    """Add a skeleton, its animation and the skinned mesh below one prim."""
    from pxr import Gf, UsdSkel, Vt

    person = UsdSkel.Root.Define(stage, root)
    for key, value in facts(motion, seed).items():
        # Custom data has no lists of dictionaries.
        plain = {str(number): item for number, item in enumerate(value)} if isinstance(value, list) else value
        person.GetPrim().SetCustomDataByKey(f"dropsim:{key}", plain)
    joints = motion.joints.reshape(-1, 3)
    person.CreateExtentAttr(
        Vt.Vec3fArray([Gf.Vec3f(*(joints.min(0) - REACH).tolist()), Gf.Vec3f(*(joints.max(0) + REACH).tolist())])
    )
    bind = np.tile(np.eye(4), (NUM_JOINTS, 1, 1))
    bind[:, :3, :3], bind[:, :3, 3] = R_ZUP_YUP, rig.bind @ R_ZUP_YUP.T
    local = np.stack(
        [bind[j] if parent < 0 else np.linalg.inv(bind[parent]) @ bind[j] for j, parent in enumerate(PARENTS)]
    )
    skeleton = UsdSkel.Skeleton.Define(stage, f"{root}/skeleton")
    skeleton.CreateJointsAttr(_PATHS)
    skeleton.CreateJointNamesAttr(JOINTS)
    skeleton.CreateBindTransformsAttr(_matrices(bind))
    skeleton.CreateRestTransformsAttr(_matrices(local))
    binding = UsdSkel.BindingAPI.Apply(skeleton.GetPrim())
    binding.CreateAnimationSourceRel().SetTargets([_animation(stage, motion, f"{root}/animation", local).GetPath()])
    _add_mesh(stage, rig, f"{root}/body", skeleton)


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
    translations, rotations, scales = (
        animation.CreateTranslationsAttr(),
        animation.CreateRotationsAttr(),
        animation.CreateScalesAttr(),
    )
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


def _add_mesh(stage: "pxr.Usd.Stage", rig: Rig, path: str, skeleton: "pxr.UsdSkel.Skeleton") -> None:
    from pxr import Gf, UsdGeom, UsdSkel, Vt

    points, normals = (
        np.ascontiguousarray((values @ R_ZUP_YUP.T).astype(np.float32)) for values in (rig.vertices, rig.normals)
    )
    mesh = UsdGeom.Mesh.Define(stage, path)
    mesh.CreatePointsAttr(Vt.Vec3fArray.FromNumpy(points))
    mesh.CreateFaceVertexCountsAttr(Vt.IntArray.FromNumpy(np.full(len(rig.faces), 3, dtype=np.int32)))
    mesh.CreateFaceVertexIndicesAttr(Vt.IntArray.FromNumpy(rig.faces.reshape(-1).astype(np.int32)))
    mesh.CreateNormalsAttr(Vt.Vec3fArray.FromNumpy(normals))
    mesh.SetNormalsInterpolation(UsdGeom.Tokens.vertex)
    mesh.CreateSubdivisionSchemeAttr(UsdGeom.Tokens.none)
    mesh.CreateExtentAttr(Vt.Vec3fArray.FromNumpy(np.stack((points.min(0), points.max(0)))))
    # A colour for each face.
    colors = np.concatenate([np.tile(linear_color(piece.color), (len(piece.faces), 1)) for piece in rig.pieces])
    mesh.CreateDisplayColorPrimvar(UsdGeom.Tokens.uniform).Set(Vt.Vec3fArray.FromNumpy(colors.astype(np.float32)))
    binding = UsdSkel.BindingAPI.Apply(mesh.GetPrim())
    binding.CreateSkeletonRel().SetTargets([skeleton.GetPath()])
    binding.CreateGeomBindTransformAttr(Gf.Matrix4d(1))
    binding.CreateJointIndicesPrimvar(False, 4).Set(Vt.IntArray.FromNumpy(rig.joints.reshape(-1).astype(np.int32)))
    binding.CreateJointWeightsPrimvar(False, 4).Set(
        Vt.FloatArray.FromNumpy(np.ascontiguousarray(rig.weights.reshape(-1)))
    )
