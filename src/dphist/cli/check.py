"""The command before the first release: how many records would be counted, for the data steward alone."""

from __future__ import annotations

from dphist.cli import options
from dphist.cli.bins import check_flags, make_bins
from dphist.cli.common import show


def check(
    data: options.Data,
    column: options.Column = None,
    bins: options.Bins = None,
    range_: options.Range = None,
    y_column: options.YColumn = None,
    y_bins: options.YBins = None,
    y_range: options.YRange = None,
    categories: options.Labels = None,
    where: options.Where = None,
    outside: options.Beyond = "drop",
    unit: options.Unit = None,
    max_contributions: options.MaxContributions = 1,
    table: options.Table = None,
    timezone: options.TimeZone = None,
    well_formed: options.WellFormed = False,
    encoding: options.Encoding = "utf-8",
    decimal: options.Decimal = ".",
) -> None:
    """Count which records of DATA would be used and which not, before the first release: NOT PRIVATE.

    The result gives exact counts, for the data steward alone: how many records would be counted, and why the
    others would not. Spends nothing.
    """
    from dphist.planning.plan import make_domain
    from dphist.records.check import check as sort_records

    check_flags(column, y_column, y_bins, y_range)
    found = sort_records(
        data,
        make_domain(**make_bins(bins, range_, categories, y_bins, y_range)),
        columns=[name for name in (column, y_column) if name is not None],
        where=where,
        outside=outside,  # type: ignore[arg-type]
        unit=unit,
        max_contributions=max_contributions,
        table=table,
        timezone=timezone,
        well_formed=well_formed,
        encoding=encoding,
        decimal=decimal,
    )
    show(repr(found))
