"""Pictures and videos of motions without a screen: in OpenGL (EGL, software or not), or ray-cast in numpy where that is missing."""

from dropsim.render.camera import Camera as Camera
from dropsim.render.film import contact_sheet as contact_sheet
from dropsim.render.film import draw_frame as draw_frame
from dropsim.render.film import video as video
from dropsim.render.painter import NoGLError as NoGLError
from dropsim.render.painter import Painter as Painter
from dropsim.render.painter import best_painter as best_painter
from dropsim.render.painter import missing_gl as missing_gl
from dropsim.render.raycast import RayCaster as RayCaster
from dropsim.render.stage import Sphere as Sphere
from dropsim.render.stage import Stage as Stage
from dropsim.render.stage import Style as Style
from dropsim.render.stage import follow as follow
