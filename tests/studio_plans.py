"""The plan that the studio's tests publish: two small histograms whose method runs at once."""

_HISTOGRAMS = """
[histograms.ages]
column = "age"
integers = [0, 9]
method = "identity"

[histograms.kinds]
column = "kind"
categories = ["a", "b"]
method = "identity"
"""


def plan_text(**changed):
    """Return a plan file; what is None is left out."""
    said = {"data": "people.csv", "ledger": "l.db", "dataset": "visits", "epsilon": "0.5", "unit": "person"}
    lines = [f'{key} = "{value}"\n' for key, value in (said | changed).items() if value is not None]
    return "".join(lines) + _HISTOGRAMS
