"""Settings every test shares."""

from hypothesis import settings

# A busy machine is not a failing test, and a failure must come back when it is run again.
settings.register_profile("dphist", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("dphist")
