"""Spark: the records stay in the cluster, which counts them; only bins and tallies travel.

Spark's messages quote records, so none is passed on. The count runs without ANSI mode, in which a value
that cannot be converted stops everything: the failure would disclose something about one record.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlglot import exp

from dphist.errors import DataError, UsageError
from dphist.records import sql
from dphist.records.progress import watching
from dphist.records.sql import Field, Kind
from dphist.records.tallies import Tallies

_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), "integer"),
    **dict.fromkeys(("float", "double"), "float"),
    **dict.fromkeys(("string", "varchar", "char"), "text"),
    "decimal": "decimal",
    "boolean": "boolean",
    "date": "date",
    "timestamp": "instant",
    "timestamp_ntz": "local",
}
_ANSI = "spark.sql.ansi.enabled"
# Files state extremes that leave NaN out. Spark would skip records by them, so that one record more could
# bring back or take away all NaN of its group.
_SKIPPING = ("spark.sql.parquet.filterPushdown", "spark.sql.orc.filterPushdown")
_ZONE = "spark.sql.session.timeZone"
_ESCAPES = "spark.sql.parser.escapedStringLiterals"
# Seconds of a clock without a zone, by its parts: a cast would read it in the session's zone.
_DAYS = "CAST(DATEDIFF(CAST(v AS DATE), DATE '1970-01-01') AS BIGINT) * 86400"
# Microseconds of days that no axis has would overflow.
_DAY_MICROSECONDS = f"""
    CASE WHEN {_DAYS} > 1000000000000 THEN 1000000000000000000
         WHEN {_DAYS} < -1000000000000 THEN -1000000000000000000 ELSE {_DAYS} * 1000000 END
"""
_CLOCK = f"{_DAYS} + HOUR(v) * 3600 + MINUTE(v) * 60 + SECOND(v)"
_CLOCK_MICROSECONDS = f"""
    ({_DAYS} + HOUR(v) * 3600 + MINUTE(v) * 60) * 1000000
    + CAST(EXTRACT(SECOND FROM v) * 1000000 AS BIGINT)
"""
# A binary search: after i halvings the answer lies in s.lo .. s.hi, counted from 0; their middle is tried.
_MIDDLE = "CAST((s.lo + s.hi + 1) DIV 2 AS INT)"
_SEARCH = f"""
    AGGREGATE(
        SEQUENCE(1, halvings),
        STRUCT(0 AS lo, last AS hi),
        (s, i) -> IF(
            starts[{_MIDDLE}] <= v,
            STRUCT({_MIDDLE} AS lo, s.hi AS hi),
            STRUCT(s.lo AS lo, GREATEST(s.lo, {_MIDDLE} - 1) AS hi)
        ),
        s -> s.lo
    )
"""


class Spark(sql.Engine):
    """A Spark session that has the records as a view."""

    dialect = "spark"
    to_number = "CAST({} AS DOUBLE); values that are not numbers are then left out"
    name = "the Spark data"

    def __init__(self, frame: Any, *, progress: bool) -> None:
        self.session = frame.sparkSession
        self.progress = progress
        self.salt = _salt()
        self.views: list[str] = []
        self.source = self._view(frame)

    def fields(self, query: exp.Select) -> dict[str, Field]:
        with _errors(self.name):
            schema = self._query(query).schema
        if len({f.name.casefold() for f in schema}) < len(schema.fields):
            raise DataError(f"{self.name} has two columns of one name; select the ones to count.")
        return {f.name: Field(_KINDS.get(f.dataType.typeName(), "other"), _type(f)) for f in schema}

    def guard(self, expression: exp.Expression) -> exp.Expression:
        """Refuse patterns taken from a record: a malformed one fails even without ANSI mode."""
        for node in expression.find_all(exp.Like, exp.ILike, exp.RegexpLike):
            if not isinstance(node.expression, exp.Literal):
                raise UsageError("on Spark a pattern must be written out, such as LIKE 'a%' or RLIKE '^a'.")
        return expression

    def lookup(self, name: str, columns: dict[str, list[Any]]) -> exp.Expression:
        """Return a small table of the columns, sent to every worker; its cells are never part of a text."""
        from pyspark.sql.functions import broadcast

        types = {"bin": "bigint", "label": "string"}
        schema = ", ".join(f"`{c}` {types.get(c, 'double')}" for c in columns)
        with _errors(self.name):
            rows = list(zip(*columns.values(), strict=True))
            return self._view(broadcast(self.session.createDataFrame(rows, schema)))

    def search(
        self, rows: exp.Select, value: str, carried: list[str], starts: list[float], bins: list[int]
    ) -> exp.Select:
        """Replace each value by the bin of the last start that is not above it, by halving."""
        from pyspark.sql.functions import broadcast

        with _errors(self.name):
            schema = "`starts` array<double>, `bins` array<bigint>"
            edges = self._view(broadcast(self.session.createDataFrame([(starts, bins)], schema)))
        at = sql.fill(
            _SEARCH,
            self.dialect,
            v=sql.column(value, "r"),
            starts=sql.column("starts", "edges"),
            halvings=exp.Literal.number(max(1, (len(starts) - 1).bit_length())),
            last=exp.Literal.number(len(starts) - 1),
        )
        found = sql.fill("bins[at]", self.dialect, bins=sql.column("bins", "edges"), at=at)
        return (
            sql.select(carried, **{value: found})
            .from_(rows.subquery("r"))
            .join(exp.alias_(edges, "edges", table=True), join_type="cross")
        )

    def text(self, value: exp.Expression) -> exp.Expression:
        # A column may have a collation for which 'a' is 'A'.
        return exp.Collate(this=exp.cast(value, "text"), expression=exp.to_identifier("UTF8_BINARY"))

    def sha256(self, text: exp.Expression) -> exp.Expression:
        # Spark keeps bytes that are no text in a column of text; the salt in front of them is valid.
        template = "CASE WHEN IS_VALID_UTF8(key) THEN SHA2(key, 256) END"
        return sql.fill(template, self.dialect, key=text)

    def seconds(self, value: exp.Expression, field: Field) -> exp.Expression:
        template = {"instant": "UNIX_SECONDS(v)", "date": _DAYS, "local": _CLOCK}[field.kind]
        return exp.cast(exp.paren(sql.fill(template, self.dialect, v=value)), "double")

    def microseconds(self, value: exp.Expression, field: Field) -> exp.Expression:
        template = {"instant": "UNIX_MICROS(v)", "date": _DAY_MICROSECONDS, "local": _CLOCK_MICROSECONDS}
        return exp.cast(exp.paren(sql.fill(template[field.kind], self.dialect, v=value)), "bigint")

    def bound(self, rows: exp.Select, limit: int, *, is_large: bool = False) -> exp.Select:
        """Keep at most ``limit`` rows of each unit, those with the least draws; no unit is null.

        A draw is a hash of the salt, the unit, the bin and the row's place among its unit's rows in the
        order of their bins. Rows of one place differ in nothing else, so what a unit keeps is a function
        of its own rows and the salt: a stage that Spark runs again, after a machine was lost, keeps the same,
        in whatever order the rows come. With ``rand()`` it might keep others, while some of the first choice
        had been counted already. For every salt, known or not, a unit counts at most ``limit`` times.
        """
        who = exp.alias_(self.text(sql.column("unit")), "who", quoted=True)
        named = sql.select(["unit", "bin"]).select(who).from_(rows.subquery("r"))
        # A collation may take different texts for one unit: these have an order too.
        placed = sql.select(["unit", "who", "bin"], place=_rank("bin", "who")).from_(named.subquery("r"))
        salted = [exp.Literal.string(self.salt), *(sql.column(c) for c in ("who", "bin", "place"))]
        draw = exp.Anonymous(this="XXHASH64", expressions=salted)
        drawn = sql.select(["unit", "bin", "place"], draw=draw).from_(placed.subquery("r"))
        ranked = sql.select(["bin"], rank=_rank("draw", "place")).from_(drawn.subquery("r"))
        few = exp.LTE(this=sql.column("rank"), expression=exp.Literal.number(limit))
        return sql.select(["bin"]).from_(ranked.subquery("r")).where(few)

    def run(self, query: exp.Expression) -> Tallies:
        with _errors(self.name), watching(self.name, self._share, shown=self.progress):
            found = self._query(query).toArrow()
            return found["bin"].to_numpy(), found["tally"].to_numpy()

    def _share(self) -> float | None:
        """Return the finished part of the tasks, which Spark reports only to a session in this process."""
        try:
            tracker = self.session.sparkContext.statusTracker()
            stages = [tracker.getStageInfo(i) for i in tracker.getActiveStageIds()]
            tasks = [(s.numCompletedTasks, s.numTasks) for s in stages if s is not None]
        except Exception:  # progress is never a reason to fail
            return None
        return sum(d for d, _ in tasks) / sum(n for _, n in tasks) if tasks else None

    def _query(self, query: exp.Expression) -> Any:
        text = sql.generate(query, self.dialect)
        if "${" in text:
            raise UsageError(
                "Spark substitutes ${...} in SQL text; rename the column, or write the expression without it."
            )
        return self.session.sql(text)

    def _view(self, frame: Any) -> exp.Table:
        name = f"dphist_{uuid.uuid4().hex}"
        frame.createTempView(name)
        self.views.append(name)
        return exp.table_(exp.to_identifier(name, quoted=True))


def _salt() -> str:
    # It decides which of a unit's records are kept, never how many, so no privacy rests on it.
    return uuid.uuid4().hex


def _rank(*order: str) -> exp.Expression:
    ordered = exp.Order(expressions=[exp.Ordered(this=sql.column(c)) for c in order])
    return exp.Window(this=exp.RowNumber(), partition_by=[sql.column("unit")], order=ordered)


@contextmanager
def connect(frame: Any, *, table: str | None, zone: str = "UTC", progress: bool) -> Iterator[Spark]:
    """Make a Spark DataFrame countable; its session is left as it was."""
    if not hasattr(frame, "sparkSession") or not hasattr(frame, "createTempView"):
        raise UsageError(
            f"give a Spark DataFrame, such as spark.read.parquet(path), not {type(frame).__name__}."
        )
    if table is not None:
        raise UsageError("table goes with a database; give spark.table(name) as the data instead.")
    with _errors(Spark.name):
        conf = frame.sparkSession.conf
        if conf.get(_ESCAPES, "false").lower() == "true":
            raise UsageError(f"{_ESCAPES} changes what a quoted text means; set it to false for the count.")
        settings = {_ANSI: "false", _ZONE: zone, **dict.fromkeys(_SKIPPING, "false")}
        before = {name: conf.get(name) for name in settings}
    engine = None
    try:
        with _errors(Spark.name):
            for name, value in settings.items():
                conf.set(name, value)
            engine = Spark(frame, progress=progress)
        yield engine
    finally:
        try:
            for name, value in before.items():
                conf.set(name, value)
            for view in engine.views if engine is not None else ():
                frame.sparkSession.catalog.dropTempView(view)
        except Exception:  # a session that is gone has nothing left to tidy
            pass


def session(*, cores: int | None = None, memory: str = "2g") -> Any:
    """Start Spark on this machine, quiet and without its web page; for a cluster, make your own session."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise UsageError("Spark is not installed: pip install 'dphist[spark]'.") from None
    home = os.environ.get("JAVA_HOME")
    java = (Path(home) / "bin" / "java").exists() if home else shutil.which("java") is not None
    if not java:
        where = f"JAVA_HOME is {home}, which holds no Java" if home else "the PATH holds no Java"
        raise UsageError(f"Spark needs Java 17 or later, and {where}. Install it, or set JAVA_HOME.")
    builder = SparkSession.builder.master(f"local[{cores or '*'}]").appName("dphist")
    settings = {
        "spark.driver.memory": memory,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "OFF",  # its log quotes records
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "8",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    with _errors("Spark"):
        return builder.getOrCreate()


@contextmanager
def _errors(name: str) -> Iterator[None]:
    """Raise an error of ours without Spark's message, which may quote records."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.logger import PySparkLogger

    log = PySparkLogger.getLogger("SQLQueryContextLogger")  # pyspark prints there what Spark said
    quiet, log.disabled = log.disabled, True
    try:
        yield
    except (UsageError, DataError):
        raise
    except (Py4JError, OSError, AttributeError, AssertionError) as error:
        # A stopped session is None inside; one whose Java process died refuses the connection.
        if type(error).__name__ == "Py4JJavaError":
            raise DataError(_FAILED.format(name)) from None
        raise DataError(
            f"{name} cannot be reached: the session was stopped, or its Java process is gone. Make a new one."
        ) from None
    except ImportError:
        raise UsageError("counting in Spark needs pyarrow: pip install 'dphist[spark]'.") from None
    except (PySparkException, ValueError, TypeError):
        raise DataError(_FAILED.format(name)) from None
    finally:
        log.disabled = quiet


_FAILED = (
    "{} could not be counted: a file is missing, damaged or cut short, or a column's type does not fit what "
    "was asked for. What Spark said is not repeated here, for it may quote a record."
)


def _type(field: Any) -> str:
    return str(field.dataType.typeName()).upper()
