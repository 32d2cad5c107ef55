"""The command before the first release: how many records would be counted, for the data steward alone."""

from __future__ import annotations

from dphist.cli import options
from dphist.cli.bins import check_columns, make_bins
from dphist.cli.common import show
from dphist.cli.options import bundled
from dphist.cli.stream import check_format, read_as, spooled


@bundled
def check(data: options.Data, axes: options.Axes, reading: options.Reading, person: options.Person) -> None:
    """Count which records of DATA would be used and which not, before the first release: NOT PRIVATE.

    The result gives exact counts, for the data steward alone: how many records would be counted, and why the
    others would not. Spends nothing.
    """
    from dphist.records.check import check as sort_records

    check_columns(axes)
    check_format(data, reading.format)
    declared = make_bins(axes)
    columns = [name for name in (axes.column, axes.y_column) if name is not None]
    with spooled(data, reading.format) as source:
        found = sort_records(
            source,
            declared["bins"],
            columns=columns,
            timezone=axes.timezone,
            **read_as(reading),
            **vars(person),
        )
    show(repr(found))
