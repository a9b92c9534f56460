"""Scene files: a scene, and how long and how it is simulated, as TOML that people read, edit and write.

The tables and keys are the dataclasses' own fields, and their units and comments the lines under those fields: nothing is said twice.
"""

from dropsim.scene.files.changing import changed
from dropsim.scene.files.reading import read_scene
from dropsim.scene.files.setup import SOMERSAULT, Setup, SimulatorOptions
from dropsim.scene.files.writing import write_scene

__all__ = ["SOMERSAULT", "Setup", "SimulatorOptions", "changed", "read_scene", "write_scene"]
