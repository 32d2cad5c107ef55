"""The version, written once: packaging and every release read it here."""

__version__ = "0.1.0"
