"""The result: values, groups, error model, charges, provenance; to be asked, drawn, saved and loaded."""

from __future__ import annotations

from dphist._common.renamed import old_names
from dphist._common.spent import Spent
from dphist.release.files import fresh_name, load, load_one, save_fresh
from dphist.release.postprocess import POSTS, Post, integer, nonneg
from dphist.release.release import Estimate, Estimates, Release
from dphist.release.sparse import SparseRelease
from dphist.uncertainty.models import Merged

__all__ = [
    "POSTS",
    "Estimate",
    "Estimates",
    "Merged",
    "Post",
    "Release",
    "SparseRelease",
    "Spent",
    "fresh_name",
    "integer",
    "load",
    "load_one",
    "nonneg",
    "save_fresh",
]

__getattr__ = old_names(globals(), SpentShare="Spent")
