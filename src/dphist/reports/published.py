"""What the catalogue says of a release's method."""

from __future__ import annotations

from dphist.methods.catalogue import ALIASES, CATALOGUE
from dphist.release.words import AnyRelease, Published, method_that_ran


def published(release: AnyRelease) -> Published | None:
    """Return what the catalogue says of the method that ran; None for a pipeline that it does not have."""
    name = method_that_ran(release)
    method = CATALOGUE.get(ALIASES.get(name, name))
    if method is None:
        return None
    return Published(method.summary, method.citation, method.data_dependent)
