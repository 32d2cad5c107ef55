"""The small helpers that every room may use: the version, harmless text, and temporary files."""

from __future__ import annotations

__version__ = "0.1.0"  # written once: packaging and every release read it here
