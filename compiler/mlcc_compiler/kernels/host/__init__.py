"""Kernels for the compiling machine, on numpy arrays: the codec's searches."""

from mlcc_compiler.kernels.host.grid_search import fit_curve, fit_ranges, fit_symmetric
from mlcc_compiler.kernels.host.one_level import codes, fit_affine, largest, places
from mlcc_compiler.kernels.host.vectors import LANES, build, runs_here

__all__ = [
    "LANES",
    "build",
    "codes",
    "fit_affine",
    "fit_curve",
    "fit_ranges",
    "fit_symmetric",
    "largest",
    "places",
    "runs_here",
]
