"""The options that select records and declare bins, shared by the commands that read data."""

from __future__ import annotations

from typing import Annotated

import typer

Data = Annotated[
    str, typer.Argument(help="CSV, TSV, JSON lines, Parquet or a database; a file, a glob or a folder.")
]
Column = Annotated[str | None, typer.Option(help="Column to count, or an SQL expression of columns.")]
Bins = Annotated[str | None, typer.Option(help="Number of equal bins, with --range; or edges: 0,18,65,120")]
Range = Annotated[
    tuple[str, str] | None,
    typer.Option(
        "--range", metavar="LO HI", help="Smallest and largest possible value, from public knowledge."
    ),
]
YColumn = Annotated[str | None, typer.Option(help="Second column, for a two-dimensional histogram.")]
YBins = Annotated[str | None, typer.Option(help="Number of bins of the second column.")]
YRange = Annotated[tuple[str, str] | None, typer.Option(metavar="LO HI", help="Range of the second column.")]
Labels = Annotated[str | None, typer.Option(help='Labels to count, as a line of CSV: red,green,"blue, dark"')]
Where = Annotated[str | None, typer.Option(help="Count only records that meet this SQL condition.")]
Beyond = Annotated[str, typer.Option(help="What happens to records outside the range: drop or clip.")]
Unit = Annotated[
    str | None,
    typer.Option(help="Column that identifies a person, who is then protected; default: one record."),
]
MaxContributions = Annotated[
    int, typer.Option(help="Number of records counted per person; the others are left out.")
]
Table = Annotated[str | None, typer.Option(help="Table or SELECT, when DATA is a database file.")]
TimeZone = Annotated[
    str | None, typer.Option(help="Time zone of expressions in --where and --column; default UTC.")
]
WellFormed = Annotated[
    bool,
    typer.Option(
        "--well-formed",
        help="Declare that a correct program wrote every record: allows newlines in quotes, JSON arrays.",
    ),
]
Encoding = Annotated[str, typer.Option(help="Encoding of text files, such as latin-1 or utf-16.")]
Decimal = Annotated[str, typer.Option(metavar="MARK", help="Decimal mark of numbers in CSV: . or ,")]
By = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="One histogram per group: the column that names it, or levels from the top: region,hospital",
    ),
]
GroupList = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="The groups, which are public: a file with one per line (groups above it first, separated by "
        "tabs), or labels as a line of CSV.",
    ),
]
Other = Annotated[str | None, typer.Option(metavar="LABEL", help="A group for records of all other groups.")]
Importance = Annotated[
    list[str] | None,
    typer.Option(metavar="LEVEL=W", help="How much errors of a level count; repeat it. Default 0.1 above."),
]
