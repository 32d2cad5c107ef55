"""The result: values, groups, error model, charges, provenance; to be asked, drawn, saved and loaded."""

from __future__ import annotations

from dphist.release.core import Estimate, Release, SpentShare
from dphist.release.files import load, save_fresh
from dphist.release.margins import Merged
from dphist.release.postprocess import POSTS, Post, integer, nonneg

__all__ = [
    "POSTS",
    "Estimate",
    "Merged",
    "Post",
    "Release",
    "SpentShare",
    "integer",
    "load",
    "nonneg",
    "save_fresh",
]
