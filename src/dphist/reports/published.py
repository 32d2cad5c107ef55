"""What the catalogue says of a release's method."""

from __future__ import annotations

from dphist.methods.catalogue import ALIASES, CATALOGUE
from dphist.release.words import AnyRelease, Published


def published(release: AnyRelease) -> Published | None:
    """Return a method's description and publication; None for a pipeline that is not in the catalogue."""
    method = CATALOGUE.get(ALIASES.get(release.method, release.method))
    if method is None:
        return None
    return Published(method.summary, method.citation, method.data_dependent)
