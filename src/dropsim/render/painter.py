"""The contract of a painter, and the choice of one."""

from abc import ABC, abstractmethod
from functools import cache

from PIL import Image

from dropsim.render.camera import Camera
from dropsim.render.snapshot import Snapshot
from dropsim.render.stage import Style


class Painter(ABC):
    """Paints a moment; how, is its own business."""

    @abstractmethod
    def paint(self, moment: Snapshot, camera: Camera, style: Style) -> Image.Image:
        """Return a picture of the style's size, without its caption."""


class NoGLError(ValueError):
    """OpenGL cannot be used here; the message says what to install."""


@cache
def _gl() -> Painter | NoGLError:
    from dropsim.render.gl import GLPainter

    try:
        return GLPainter.without_screen()
    except NoGLError as error:
        return error


def missing_gl() -> str | None:
    """Say why OpenGL cannot be used here and what to install; None where it can."""
    return str(found) if isinstance(found := _gl(), NoGLError) else None


def best_painter() -> Painter:
    """Return the painter that uses OpenGL, the same one each time, or the ray-caster where there is none."""
    from dropsim.render.raycast import RayCaster

    return RayCaster() if isinstance(found := _gl(), NoGLError) else found
