"""Scene files: a scene, and how it is simulated, as TOML that people read, edit and write.

The tables and keys are the dataclasses' own fields; units come from the types, comments from the lines under the
fields.
"""

from dropsim.physics.options import SimulatorOptions
from dropsim.scene.files.reading import read_scene
from dropsim.scene.files.setup import SOMERSAULT, Setup
from dropsim.scene.files.writing import changed, write_scene

__all__ = ["SOMERSAULT", "Setup", "SimulatorOptions", "changed", "read_scene", "write_scene"]
