"""Motions for other people's programs: one function that writes any format by the file's ending."""

from dropsim.export.files import ENDINGS, export_ending, write

__all__ = ["ENDINGS", "export_ending", "write"]
