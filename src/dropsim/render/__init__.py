"""Pictures and videos of motions, drawn on the processor: no screen and no graphics card is needed."""

from dropsim.export.stage import Stage as Stage
from dropsim.render.camera import Camera as Camera
from dropsim.render.camera import follow as follow
from dropsim.render.film import Style as Style
from dropsim.render.film import contact_sheet as contact_sheet
from dropsim.render.film import draw_frame as draw_frame
from dropsim.render.film import video as video
