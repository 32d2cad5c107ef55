"""PostgreSQL: the records stay in the server, which counts them; only bins and tallies travel.

Everything happens in one transaction that is read-only and rolled back. The server's messages quote
records, so none is passed on, and no record can make an expression fail: the failure would disclose
something about one record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext
from typing import Any, NoReturn

import numpy as np
from sqlglot import exp

from dphist.domain.groups import Ints
from dphist.errors import DataError, DphistError, UsageError
from dphist.records import sql
from dphist.records.expressions import table_rows
from dphist.records.progress import watching
from dphist.records.sql import Field, Kind
from dphist.records.tallies import Tallies

try:
    import psycopg
    from psycopg import conninfo, errors, pq
except ImportError:
    raise UsageError("counting in PostgreSQL needs its driver: pip install 'dphist[postgres]'.") from None

_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("int2", "int4", "int8"), "integer"),
    **dict.fromkeys(("float4", "float8"), "float"),
    **dict.fromkeys(("text", "varchar", "bpchar", "name", "uuid"), "text"),
    **dict.fromkeys(("time", "timetz", "interval"), "time"),
    "numeric": "decimal",
    "bool": "boolean",
    "date": "date",
    "timestamp": "local",
    "timestamptz": "instant",
}
_TABLES = """
    SELECT n.nspname, c.relname, pg_catalog.pg_table_is_visible(c.oid)
    FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'v', 'm', 'f', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
      AND n.nspname NOT LIKE 'pg\\_toast%' AND pg_catalog.has_table_privilege(c.oid, 'SELECT')
"""
# What a double takes without overflow or underflow, and what arithmetic on two of them does.
_CALM = """
    CASE WHEN v BETWEEN -1e150 AND -1e-150 OR v BETWEEN 1e-150 AND 1e150 THEN CAST(v AS DOUBLE PRECISION)
         WHEN v BETWEEN -1e-150 AND 1e-150 THEN CAST(0 AS DOUBLE PRECISION) END
"""
_DECIMAL = """
    CASE WHEN v = CAST('NaN' AS NUMERIC) THEN NULL
         WHEN v > 1e300 THEN CAST('Infinity' AS DOUBLE PRECISION)
         WHEN v < -1e300 THEN CAST('-Infinity' AS DOUBLE PRECISION)
         WHEN v BETWEEN -1e-300 AND 1e-300 THEN CAST(0 AS DOUBLE PRECISION)
         ELSE CAST(v AS DOUBLE PRECISION) END
"""
_MICROSECONDS = """
    CAST(EXTRACT(EPOCH FROM DATE_TRUNC('minute', v)) AS BIGINT) * 1000000
    + CAST(EXTRACT(MICROSECONDS FROM v) AS BIGINT)
"""
_DAY_MICROSECONDS = "CAST(v - CAST('1970-01-01' AS DATE) AS BIGINT) * 86400000000"
_NUMBER_TEXT = r"^[-+]?[0-9]{1,30}([.][0-9]{1,30})?([eE][-+]?[0-9]{1,2})?$"
_SAFE = (  # what no value can make fail, on this server
    "Column Identifier Literal Boolean Null Var Paren And Or Not EQ NEQ GT GTE LT LTE Is NullSafeEQ "
    "NullSafeNEQ Between In Like ILike Case If Coalesce Nullif Greatest Least Ceil Floor Sign Lower Upper "
    "Length Left Right Trim Replace Concat DPipe StartsWith StrPosition Extract TimestampTrunc TryCast "
    "DataType DataTypeParam Cast"
)
_SAFE_NODES = frozenset(getattr(exp, name) for name in _SAFE.split() if hasattr(exp, name))
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)
# COPY's binary form: a header; per row the number of fields, then each one's length and content. That of an
# array is a header, then each number's length and its big-endian value.
_HEADER, _ARRAY_HEADER = 19, 20
_ELEMENT = np.dtype([("size", ">i4"), ("value", ">i8")])
_TOGETHER = 1 << 16  # bins that travel in one row


class Postgres(sql.Engine):
    """A PostgreSQL connection inside a read-only transaction."""

    dialect = "postgres"
    to_number = "CAST({} AS DOUBLE PRECISION); values that are not numbers are then left out"

    def __init__(
        self, connection: psycopg.Connection[Any], name: str, table: str | None, *, progress: bool
    ) -> None:
        self.connection = connection
        self.name = name
        self.progress = progress
        listed = self._fetch(_TABLES)
        known = {f"{schema}.{table}": (schema, table) for schema, table, _ in listed}
        known |= {table: (schema, table) for schema, table, visible in listed if visible}
        self.source = table_rows(table, known, name, self.dialect).subquery("records")
        try:
            self.columns()
        except DataError:
            raise UsageError(f"the table or SELECT does not fit {name}: check its names and types.") from None

    def fields(self, query: exp.Select) -> dict[str, Field]:
        with self._errors(), self.connection.cursor() as cursor:
            cursor.execute(self._text(query.limit(0)).encode())
            described = cursor.description or []
            oids = [column.type_code for column in described]
            found = cursor.execute(
                "SELECT oid, typname, typcategory FROM pg_catalog.pg_type WHERE oid = ANY(%s)", [oids]
            )
            types = {oid: (name, category) for oid, name, category in found}
        if len({c.name for c in described}) < len(described):
            raise DataError(f"{self.name} has two columns of one name; rename one in the SELECT.")
        return {c.name: _field(*types[c.type_code]) for c in described}

    def guard(self, expression: exp.Expression) -> exp.Expression:
        """Make an expression null where it would fail; refuse expressions for which that is impossible."""
        for node in expression.walk():
            if isinstance(node, exp.Like | exp.ILike) and not isinstance(node.expression, exp.Literal):
                raise UsageError("the pattern of LIKE must be written out, such as 'a%'.")
            if type(node) not in _SAFE_NODES and not isinstance(node, (*_ARITHMETIC, exp.Neg)):
                raise UsageError(
                    f"{node.key.upper()} is not used on PostgreSQL, where one record could make it fail; "
                    "count a view that computes it."
                )
        return expression.transform(self._calm)

    def lookup(self, name: str, columns: dict[str, list[Any]]) -> exp.Expression:
        """Return a small table of the columns, written into the query: the server is only read."""
        types = {"bin": "bigint", "label": "text"}
        rows = list(zip(*columns.values(), strict=True))
        # No text of PostgreSQL holds a NUL, so no record has such a label.
        kept = [row for row in rows if not any(isinstance(v, str) and "\0" in v for v in row)]
        arrays = [
            _array((_cell(row[i]) for row in kept), f"{types.get(column, 'double precision')}[]")
            for i, column in enumerate(columns)
        ]
        names = exp.TableAlias(
            this=exp.to_identifier("t"),
            columns=[exp.to_identifier(c, quoted=True) for c in columns],
        )
        return exp.select("*").from_(exp.Unnest(expressions=arrays, alias=names)).subquery()

    def search(
        self, rows: exp.Select, value: str, carried: list[str], starts: list[float], bins: list[int]
    ) -> exp.Select:
        """Replace each value by the bin of the last start that is not above it: the server's own search."""
        found = sql.fill(
            "(bins)[WIDTH_BUCKET(v, starts)]",
            self.dialect,
            v=sql.column(value),
            starts=_array(map(repr, starts), "double precision[]"),
            bins=_array(map(str, bins), "bigint[]"),
        )
        return sql.select(carried, **{value: found}).from_(rows.subquery("r"))

    def text(self, value: exp.Expression) -> exp.Expression:
        # A column may have a collation for which 'a' is 'A'.
        return exp.Collate(this=exp.cast(value, "text"), expression=exp.to_identifier("C", quoted=True))

    def sha256(self, text: exp.Expression) -> exp.Expression:
        # In another encoding, some text has no UTF-8, and one record could stop the count.
        if self._fetch("SHOW server_encoding") != [("UTF8",)]:
            raise UsageError(
                f"{self.name} keeps its text in another encoding than UTF-8, in which keys are hashed; count "
                "a copy of the records instead."
            )
        bytes = exp.Anonymous(this="CONVERT_TO", expressions=[text, exp.Literal.string("UTF8")])
        made = exp.Anonymous(this="SHA256", expressions=[bytes])
        return exp.Anonymous(this="ENCODE", expressions=[made, exp.Literal.string("hex")])

    def number(self, value: exp.Expression, field: Field) -> exp.Expression:
        """Return a number as a double; a decimal beyond all doubles is infinite instead of an error."""
        return (
            super().number(value, field)
            if field.kind != "decimal"
            else sql.fill(_DECIMAL, self.dialect, v=value)
        )

    def seconds(self, value: exp.Expression, field: Field) -> exp.Expression:
        whole = sql.fill("FLOOR(EXTRACT(EPOCH FROM v))", self.dialect, v=value)
        return exp.cast(whole, "double")

    def microseconds(self, value: exp.Expression, field: Field) -> exp.Expression:
        # In the server's last years microseconds are more than whole numbers hold; no axis has such years.
        inner = _DAY_MICROSECONDS if field.kind == "date" else _MICROSECONDS
        beyond = {"late": "9999-01-01", "early": "0900-01-01"}
        type = {"date": "date", "local": "timestamp", "instant": "timestamptz"}[field.kind]
        parts = {name: exp.cast(exp.Literal.string(day), type) for name, day in beyond.items()}
        return sql.fill(
            f"CASE WHEN v >= late THEN far WHEN v < early THEN -far ELSE {inner} END",
            self.dialect,
            v=value,
            far=sql.whole(1 << 62),
            **parts,
        )

    def run(self, query: exp.Expression) -> Tallies:
        text = f"COPY ({_packed(self._text(query))}) TO STDOUT (FORMAT BINARY)"
        with (
            self._errors(),
            watching(self.name, lambda: None, shown=self.progress),
            self.connection.cursor() as cursor,
            cursor.copy(text.encode()) as copy,
        ):
            parts = list(_received(copy))
        none = np.zeros(0, dtype=np.int64)
        return np.concatenate([none, *(b for b, _ in parts)]), np.concatenate([none, *(t for _, t in parts)])

    def _text(self, query: exp.Expression) -> str:
        # This server has no TRY_CAST, and a plain one would fail on what it cannot convert.
        return sql.generate(query.transform(_try_cast), self.dialect)

    def _calm(self, node: exp.Expression) -> exp.Expression:
        """Turn arithmetic into that of doubles which neither overflow nor divide by zero."""
        if isinstance(node, exp.Neg):
            return exp.paren(exp.Neg(this=sql.fill(_CALM, self.dialect, v=node.this)))
        if not isinstance(node, _ARITHMETIC):
            return node
        left: exp.Expression = exp.paren(sql.fill(_CALM, self.dialect, v=node.this))
        right: exp.Expression = exp.paren(sql.fill(_CALM, self.dialect, v=node.expression))
        if isinstance(node, exp.Mod):
            left, right = exp.cast(left, "decimal"), exp.cast(right, "decimal")
        if isinstance(node, exp.Div | exp.Mod):
            right = exp.Nullif(this=right, expression=exp.Literal.number(0))
        options = {"typed": True, "safe": False} if isinstance(node, exp.Div) else {}
        return exp.paren(type(node)(this=left, expression=right, **options))

    def _fetch(self, text: str) -> list[tuple[Any, ...]]:
        with self._errors():
            rows: list[tuple[Any, ...]] = self.connection.execute(text.encode()).fetchall()
            return rows

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            _rephrase(error, self.name, lost=self.connection.closed)


@contextmanager
def connect(data: Any, *, table: str | None, zone: str = "UTC", progress: bool) -> Iterator[Postgres]:
    """Open a URL or use a psycopg connection; the server and the connection are left as they were."""
    if isinstance(data, str):
        connection, name = _open(data)
        ending: Any = closing(connection)
    elif isinstance(data, psycopg.Connection):
        connection, name, ending = data, "the PostgreSQL database", nullcontext()
        if connection.closed or connection.info.transaction_status == pq.TransactionStatus.INERROR:
            raise UsageError("the connection is closed, or its transaction has failed; open a new one.")
    else:
        raise UsageError(
            f"{type(data).__module__}.{type(data).__name__} is not counted; give a psycopg Connection or a "
            "URL."
        )
    with ending:
        try:
            with connection.transaction(force_rollback=True):
                connection.execute("SET LOCAL transaction_read_only = on")
                connection.execute("SET LOCAL standard_conforming_strings = on")
                # What a date is read as must not depend on the server's or the user's settings.
                connection.execute("SET LOCAL DateStyle = 'ISO, MDY'")
                _set_zone(connection, zone)
                yield Postgres(connection, name, table, progress=progress)
        except psycopg.Error as error:
            _rephrase(error, name, lost=connection.closed)


def _set_zone(connection: psycopg.Connection[Any], zone: str) -> None:
    try:
        connection.execute("SELECT pg_catalog.set_config('TimeZone', %s, true)", [zone])
    except errors.InvalidParameterValue:
        raise UsageError(f"this PostgreSQL server knows no time zone {zone}; name another.") from None


def _open(url: str) -> tuple[psycopg.Connection[Any], str]:
    """Connect; a message names the server, never the user or the password."""
    try:
        parts = conninfo.conninfo_to_dict(url)
    except psycopg.Error:
        raise UsageError(
            "the address is not one of PostgreSQL; write postgresql://user:password@host:port/database."
        ) from None
    where = f"{parts.get('host') or 'this machine'}, port {parts.get('port') or 5432}"
    try:
        made = psycopg.connect(url, connect_timeout=int(parts.get("connect_timeout") or 10))
    except psycopg.OperationalError as error:
        said = str(error)  # of the server's message only the kind of error is passed on
        if "authentication" in said or "password" in said:
            raise DataError(f"the server at {where} refused the user or the password.") from None
        if "database" in said and "does not exist" in said:
            raise DataError(f"the server at {where} has no database of that name.") from None
        raise DataError(
            f"no PostgreSQL server answers at {where}: check the address, and that it is running."
        ) from None
    return made, f"the PostgreSQL database at {where}"


def _rephrase(error: psycopg.Error, name: str, *, lost: bool) -> NoReturn:
    """Raise an error of ours without the server's message, which may quote records."""
    if lost or isinstance(error, errors.AdminShutdown | errors.CrashShutdown):
        raise DataError(
            f"{name} went away during the count; nothing was counted. Start it, and count again."
        ) from None
    if isinstance(error, errors.InsufficientPrivilege):
        raise DataError(
            f"the user may not read these records in {name}; ask for the SELECT privilege."
        ) from None
    if isinstance(error, errors.QueryCanceled):
        raise DataError(
            f"{name} stopped the count: someone cancelled it, or statement_timeout is too short."
        ) from None
    if (error.sqlstate or "").startswith("53"):
        raise DataError(f"{name} has too little memory or disk for this count.") from None
    if isinstance(error, errors.InternalError_):
        raise DphistError(f"PostgreSQL failed while counting {name}; nothing was counted.") from None
    raise DataError(
        f"{name} could not be counted: the table, or the type of a column, does not fit what was asked for. "
        "What the server said is not repeated here, for it may quote a record."
    ) from None


def _try_cast(node: exp.Expression) -> exp.Expression:
    """Turn TRY_CAST into a CAST of what surely converts; null for the rest."""
    if not isinstance(node, exp.TryCast):
        return node
    to = node.args["to"]
    written = exp.cast(node.this, "text")
    if to.this in exp.DataType.TEXT_TYPES:
        return written
    if to.this not in (*exp.DataType.FLOAT_TYPES, exp.DataType.Type.DECIMAL):
        raise UsageError(
            f"CAST to {to.sql('postgres')} is not used on PostgreSQL, where one record could make it fail; "
            "CAST to DOUBLE PRECISION, or count a view that converts it."
        )
    fits = exp.RegexpLike(this=written, expression=exp.Literal.string(_NUMBER_TEXT))
    return exp.case().when(fits, exp.cast(written.copy(), "double"))


def _cell(value: str | float) -> str:
    """Return a text or a number as an element of an array that is written as one literal."""
    if not isinstance(value, str):
        return repr(value)
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _array(cells: Iterator[str], type: str) -> exp.Expression:
    """Return an array of any length as one node of the query, which is copied and walked many times."""
    return exp.cast(
        exp.Literal.string("{" + ",".join(cells) + "}"), exp.DataType.build(type, dialect="postgres")
    )


def _packed(counting: str) -> str:
    """Return a query for the bins and tallies of a counting query, thousands in a row.

    A row takes microseconds to receive, whatever is in it. The rows are made from sorted ones, one at a time,
    and sorting goes to the server's disk if need be: its memory does not grow with the number of bins.
    """
    rows = f'SELECT "bin", "tally", "bin" / {_TOGETHER} AS "block" FROM ({counting}) AS c ORDER BY "block"'
    return f'SELECT array_agg("bin"), array_agg("tally") FROM ({rows}) AS r GROUP BY "block"'


def _received(copied: Iterable[Any]) -> Iterator[Tallies]:
    """Yield the two arrays of each row of a binary COPY, whose bytes come in parts of any length."""
    parts, held = iter(copied), b""

    def take(size: int) -> bytes:
        nonlocal held
        while len(held) < size:
            held += bytes(next(parts))
        taken, held = held[:size], held[size:]
        return taken

    take(_HEADER)
    while int.from_bytes(take(2), "big", signed=True) == 2:
        bins, tallies = (take(int.from_bytes(take(4), "big")) for _ in range(2))
        yield _whole_numbers(bins), _whole_numbers(tallies)
    for _ in parts:  # the connection is free again at their end
        pass


def _whole_numbers(array: bytes) -> Ints:
    made: Ints = np.frombuffer(array, dtype=_ELEMENT, offset=_ARRAY_HEADER)["value"].astype(np.int64)
    return made


def _field(name: str, category: str) -> Field:
    if category == "E":  # an enumeration made by the database's owner
        return Field("text", "ENUM")
    return Field(_KINDS.get(name, "other"), "ARRAY" if category == "A" else name.upper())
