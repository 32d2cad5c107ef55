"""Every engine counts the same: DuckDB, a PostgreSQL server and a local Spark that the tests start."""

from __future__ import annotations

import datetime as dt
import functools
import math
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import uuid
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings

from dphist.domain import Addresses, Categories, Codes, Domain, Hashed, Instants, Integers, Regular, Variable
from dphist.errors import DataError, DphistError, UsageError
from dphist.records import Tally, count, count_together
from dphist.records.check import check

pytestmark = [
    # Spark 4 warns of pandas 3, which is not used here.
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support:FutureWarning"),
]
SECRET = "Hjördis-Quartz-7781"
LEFT_OUT = ("filtered", "undecodable", "missing", "unreadable", "unknown", "outside")
LEFT_OUT += ("without_unit", "bounded")


# --- servers ------------------------------------------------------------------------------------------------


def _tool(name: str) -> str | None:
    found = shutil.which(name)
    if found:
        return found
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    return str(installed[0]) if installed else None


class Server:
    """A PostgreSQL server of our own on a loopback port, with passwords; gone at the end."""

    password = "right horse"

    def __init__(self) -> None:
        initdb, self.postgres = _tool("initdb"), _tool("postgres")
        if initdb is None or self.postgres is None:
            pytest.skip("no PostgreSQL server is installed (make services)")
        self.user: list[str] = []
        self.folder = Path(tempfile.mkdtemp(prefix="dphist-pg-", dir="/tmp"))
        if os.geteuid() == 0:  # the server refuses to run as root
            if shutil.which("runuser") is None:
                pytest.skip("PostgreSQL does not run as root, and there is no runuser")
            name = next(n for n in ("postgres", "nobody") if _exists(n))
            self.user = ["runuser", "-u", name, "--"]
            account = pwd.getpwnam(name)
            os.chown(self.folder, account.pw_uid, account.pw_gid)
        secret = self.folder / "password"
        secret.write_text(self.password)
        secret.chmod(0o644)
        self.data = self.folder / "data"
        made = [initdb, "-D", str(self.data), "-U", "tester", "-A", "scram-sha-256", "-E", "UTF8"]
        made += ["--locale=C", "--no-sync", f"--pwfile={secret}"]
        subprocess.run([*self.user, *made], check=True, capture_output=True, cwd=self.folder)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.start()

    def start(self) -> None:
        run = [self.postgres, "-D", str(self.data), "-k", "", "-h", "127.0.0.1", "-p", str(self.port)]
        run += ["-c", "fsync=off"]
        log = (self.folder / "log").open("ab")
        self.process = subprocess.Popen(
            [*self.user, *run], stdout=log, stderr=log, cwd=self.folder, start_new_session=True
        )
        log.close()
        import psycopg

        for _ in range(200):
            try:
                psycopg.connect(self.url()).close()
                return
            except psycopg.OperationalError:
                time.sleep(0.05)
        pytest.fail("PostgreSQL did not start: " + (self.folder / "log").read_text())

    def url(self, password: str | None = None, database: str = "postgres") -> str:
        word = (self.password if password is None else password).replace(" ", "%20")
        return f"postgresql://tester:{word}@127.0.0.1:{self.port}/{database}"

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGINT)  # PostgreSQL's fast shutdown
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def _exists(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


@pytest.fixture(scope="session")
def server():
    pytest.importorskip("psycopg", reason="the extra 'postgres' is not installed")
    made = Server()
    yield made
    made.stop()


@pytest.fixture(scope="session")
def spark():
    pytest.importorskip("pyspark", reason="the extra 'spark' is not installed")
    from dphist.records.engines.spark import session

    try:
        made = session(cores=2, memory="1g")
    except UsageError as error:
        pytest.skip(f"no Spark here: {error}")
    made.conf.set("spark.sql.shuffle.partitions", "1")
    yield made
    made.stop()


_SQL = {
    pa.string(): "text",
    pa.bool_(): "boolean",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp",
    pa.timestamp("us", "UTC"): "timestamptz",
    pa.float32(): "real",
    pa.float64(): "double precision",
    pa.int8(): "smallint",
    pa.int16(): "smallint",
    pa.int32(): "integer",
    pa.int64(): "bigint",
}


def _sql_type(type: pa.DataType) -> str:
    return f"numeric({type.precision}, {type.scale})" if pa.types.is_decimal(type) else _SQL[type]


def in_postgres(server: Server, table: pa.Table) -> tuple[str, dict[str, str]]:
    import psycopg
    from psycopg import sql

    name = f"t_{uuid.uuid4().hex}"
    columns = [
        sql.SQL("{} {}").format(sql.Identifier(f.name), sql.SQL(_sql_type(f.type))) for f in table.schema
    ]
    with psycopg.connect(server.url()) as connection, connection.cursor() as cursor:
        cursor.execute(
            sql.SQL("CREATE TABLE {} ({})").format(sql.Identifier(name), sql.SQL(", ").join(columns))
        )
        with cursor.copy(sql.SQL("COPY {} FROM STDIN").format(sql.Identifier(name))) as copy:
            for row in zip(*(c.to_pylist() for c in table.columns), strict=True):
                copy.write_row(row)
    return server.url(), {"table": name}


@pytest.fixture(params=["duckdb", "postgres", "spark"])
def load(request, tmp_path):
    """Give an Arrow table to an engine; return what count() takes."""
    if request.param == "duckdb":
        return lambda table: (table, {})
    if request.param == "postgres":
        return functools.partial(in_postgres, request.getfixturevalue("server"))
    session = request.getfixturevalue("spark")

    def write(table: pa.Table):
        path = tmp_path / f"{uuid.uuid4().hex}.parquet"
        pq.write_table(table, path)
        return session.read.parquet(str(path)), {}

    return write


def counted(load, table: pa.Table, axis, **options) -> np.ndarray:
    domain = axis if isinstance(axis, Domain) else Domain((axis,))
    data, where = load(table)
    return count(data, domain, **({"columns": "x"} | options | where)).values


def around(edges: np.ndarray) -> np.ndarray:
    near = [edges, np.nextafter(edges, -np.inf), np.nextafter(edges, np.inf), (edges[1:] + edges[:-1]) / 2]
    return np.concatenate([*near, [math.inf, -math.inf, math.nan, 0.0, -0.0]])


# --- the same bins ------------------------------------------------------------------------------------------

AXES = [
    Regular(lo=0, hi=1, bins=10),
    Regular(lo=-1, hi=1, bins=49),
    Regular(lo=0.1, hi=0.7, bins=4097),
    Regular(lo=1e15, hi=1e15 + 300, bins=1000),
    Variable([-3, 0, 0.5, 7]),
    Variable(np.geomspace(1e-3, 1e6, 500)),
    Integers(-5, 20),
    Integers(-(2**53), -(2**53) + 3),
    Integers(2**53 - 2, 2**53),
]


def test_addresses_codes_and_very_many_bins(load):
    """Every engine gives the bins that Python gives, bins beyond 2**53 too, and bounds a person's records."""
    texts = [
        "10.1.2.3",
        "10.1.2.200",
        "10.255.0.1",
        "11.0.0.1",
        "010.1.1.1",
        "10.1.2.3\n",
        "1.2.3",
        "",
        "::1",
    ]
    texts += [
        "2001:DB8::1",
        "2001:db8:0:ffff::",
        "1::\n",
        "::",
        "fe80::1%x",
        "A00Z",
        "B99A",
        "b99A",
        "B99",
        None,
    ]
    texts += ["2001:db8:1:2:3:4:5:6", "1:2:3:4:5:6:7::", "::ffff:1.2.3.4", "\u0661.1.1.1", "B9\u00e9A"]
    who = [f"p{i % 3}" for i in range(len(texts))]
    table = pa.table(
        {"x": pa.array(texts, pa.string()), "u": who, "n": [2**50 - i for i in range(len(texts))]}
    )
    data, where = load(table)
    keyed = Addresses("10.0.0.0/8", 24), Addresses("::/0", 62), Codes("[A-Z][0-9]{2}[A-Z]")
    for axis in (*keyed, Hashed(62, "it's \\ \u00e9 %"), Hashed(31)):
        want: dict[int, int] = {}
        for text in texts:
            if (bin := axis.bin(text)) is not None:
                want[bin] = want.get(bin, 0) + 1
        bins, tallies = count(data, Domain((axis,)), columns="x", **where).held()
        assert dict(zip(bins.tolist(), tallies.tolist(), strict=True)) == want, axis
    large = Domain((Integers(0, 2**53),))
    bins, tallies = count(data, large, columns="n", unit="u", max_contributions=2, **where).held()
    assert tallies.sum() == 6
    assert set(bins.tolist()) <= {2**50 - i for i in range(len(texts))}


def test_doubles_next_to_edges(load):
    """Every axis and both ways with what lies outside, in one load: an engine takes a while to start."""
    values = np.concatenate([around(axis.edges) for axis in AXES])
    table = pa.table({"x": pa.array([*values, None], pa.float64())})
    data, where = load(table)
    for i, axis in enumerate(AXES):
        for outside in ("drop", "clip") if i % 3 == 0 else ("drop",):
            got = count(data, Domain((axis,)), columns="x", outside=outside, **where).values
            at = axis.index(values, outside)
            assert np.array_equal(got, np.bincount(at[at >= 0], minlength=axis.n)), (axis, outside)


def test_numeric_types_and_booleans(load):
    cells = [1, 2, 2, 3, None]
    table = pa.table(
        {
            "i1": pa.array(cells, pa.int16()),
            "i4": pa.array(cells, pa.int32()),
            "i8": pa.array(cells, pa.int64()),
            "f4": pa.array(cells, pa.float32()),
            "f8": pa.array(cells, pa.float64()),
            "d": pa.array([None if c is None else Decimal(c) for c in cells], pa.decimal128(20, 2)),
            "b": pa.array([True, False, True, True, None]),
        }
    )
    data, where = load(table)
    for name in ("i1", "i4", "i8", "f4", "f8", "d"):
        got = count(data, Domain((Regular(lo=0, hi=4, bins=4),)), columns=name, **where).values
        assert got.tolist() == [0, 1, 2, 1], name
    for axis, expected in (
        (Integers(0, 1), [1, 3]),
        (Categories(("false", "true")), [1, 3]),
        (Categories(("true",), other=True, null=True), [3, 1, 1]),
    ):
        assert count(data, Domain((axis,)), columns="b", **where).values.tolist() == expected
    for name in ("i4", "i8"):
        assert count(data, Domain((Categories(("2", "3")),)), columns=name, **where).values.tolist() == [2, 1]


HOSTILE = [
    "'; DROP TABLE people; --",
    '" OR 1=1 --',
    "a\\'b",
    "\\",
    "${HOME}",
    "{}",
    "%s",
    "$1",
    "",
    " ",
    "NULL",
    "x" * 5000,
    "日本語\n\t",
    "`",
]


def test_hostile_labels_are_only_labels(load):
    table = pa.table({"x": [*HOSTILE, *HOSTILE[:3], "unseen", None]})
    expected = [2, 2, 2, *[1] * (len(HOSTILE) - 3)]
    labels = tuple(HOSTILE)
    data, where = load(table)
    for axis, tail in (
        (Categories(labels), []),
        (Categories(labels, other=True), [1]),
        (Categories(labels, null=True), [1]),
        (Categories(labels, other=True, null=True), [1, 1]),
    ):
        assert count(data, Domain((axis,)), columns="x", **where).values.tolist() == [*expected, *tail]
    odd = Categories(("a\0b", "\ud800", "unseen"))
    assert count(data, Domain((odd,)), columns="x", **where).values.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    "name", ["'; DROP TABLE people; --", '" OR 1=1 --', "select", "a.b", "a`b", "Ä", "a;b"]
)
def test_hostile_column_names_are_only_names(load, name):
    table = pa.table({name: [1.0, 2.0, 2.0], "u": [1, 1, 1]})
    got = counted(load, table, Integers(0, 3), columns=name, unit=name, max_contributions=1)
    assert got.tolist() == [0, 1, 1, 0]


REFUSED = [
    "x; DROP TABLE people",
    "(SELECT 1)",
    "x IN (SELECT 1)",
    "EXISTS (SELECT 1)",
    "pg_read_file('/etc/passwd')",
    "pg_sleep(1)",
    "current_setting('data_directory')",
    "java_method('java.lang.System', 'exit')",
    "reflect('java.lang.System', 'getenv')",
    "version()",
    "sum(x) OVER ()",
    "count(*)",
    "random()",
    "rand()",
    "now()",
    "input_file_name()",
    "x AS y",
    "",
    "ctid",
    "raise_error('x')",
]


def test_expressions_that_are_refused(load):
    data, where = load(pa.table({"x": [1.0]}))
    for text in REFUSED:
        for options in ({"columns": "x", "where": text}, {"columns": text}, {"columns": "x", "unit": text}):
            with pytest.raises(DphistError):
                count(data, Domain((Integers(0, 1),)), **options, **where)


def test_expressions_and_filters(load):
    table = pa.table({"x": [1, 2, 3, 4], "b": [10, 20, 30, None], "s": ["x", "y", "x", "z%"]})
    data, where = load(table)
    tens = Domain((Regular(lo=0, hi=50, bins=5),))
    for options, expected in (
        ({"columns": "b + x"}, [0, 1, 1, 1, 0]),
        ({"columns": "b", "where": "s = 'x'"}, [0, 1, 0, 1, 0]),
        ({"columns": "b", "where": "s IN ('x', 'y') AND NOT x BETWEEN 2 AND 2"}, [0, 1, 0, 1, 0]),
        ({"columns": "CASE WHEN s LIKE 'x%' THEN 1 ELSE 40 END"}, [2, 0, 0, 0, 2]),
        ({"columns": "x", "where": "b IS NULL"}, [1, 0, 0, 0, 0]),
        ({"columns": "coalesce(b, 0) * 1.0"}, [1, 1, 1, 1, 0]),
    ):
        assert count(data, tens, **options, **where).values.tolist() == expected, options


def test_no_record_can_make_an_expression_fail(load):
    """A failure that depends on one record would tell of it for nothing."""
    table = pa.table({"x": [0.0, 2.0], "n": [0, 2**62], "s": [SECRET, "3"]})
    data, where = load(table)
    axis = Domain((Integers(0, 9),))
    for options, expected in (
        ({"columns": "CAST(s AS DOUBLE PRECISION)" if where else "CAST(s AS DOUBLE)"}, [3]),
        ({"columns": "4 / x"}, [2]),
        ({"columns": "n * n"}, [0]),
        ({"columns": "x", "where": "8 / n > 100"}, []),
    ):
        got = count(data, axis, **options, **where).values
        assert set(np.flatnonzero(got).tolist()) - {0} == set(expected) - {0}, options


def test_two_columns(load):
    draws = np.random.default_rng(3)
    x, y = draws.normal(0, 2, 5000), draws.uniform(-1, 11, 5000)
    domain = Domain((Regular(lo=-3, hi=3, bins=7), Variable(np.linspace(0, 10, 90) ** 1.5)))
    expected = np.histogram2d(x, y, bins=[a.edges for a in domain.axes])[0].astype(np.int64).ravel()
    got = counted(load, pa.table({"x": x, "y": y}), domain, columns=("x", "y"))
    assert np.array_equal(got, expected)


# --- time ---------------------------------------------------------------------------------------------------

BERLIN = "Europe/Berlin"
TIME_AXES = [
    Instants("2024-03-30", "2024-04-02", freq="1d", tz=BERLIN),
    Instants("2024-10-26", "2024-10-29", freq="1h", tz=BERLIN),
    Instants("2024-10-26", "2024-10-29", freq="25min", tz=BERLIN),
    Instants("2023-11-30T12:00", "2025-01-01", freq="1mo", tz=BERLIN),
    Instants("1969-12-30", "1970-01-03", freq="6h", tz="UTC"),
    Instants("2018-11-01", "2018-11-08", freq="1d", tz="America/Sao_Paulo"),
    Instants("2024-01-01", "2025-01-01", freq="1w"),
    Instants("2024-01-01", "2025-01-01", freq="1h"),
]


def moments() -> list[dt.datetime]:
    seconds = np.unique(np.concatenate([a.edges for a in TIME_AXES] + [TIME_AXES[5].clock[0]]))
    seconds = seconds[:: max(1, seconds.size // 700)]
    start = dt.datetime(1970, 1, 1)
    steps = (dt.timedelta(), dt.timedelta(microseconds=1), dt.timedelta(microseconds=-1))
    return [start + dt.timedelta(seconds=int(s)) + step for s in seconds for step in steps]


def loaded_times(load, times):
    """Give clock times, instants and days to an engine; return what count() takes, and the times."""
    days = [t.date() for t in times]
    table = pa.table(
        {
            "local": pa.array([*times, None], pa.timestamp("us")),
            "instant": pa.array([*times, None], pa.timestamp("us", "UTC")),
            "day": pa.array([*days, None], pa.date32()),
        }
    )
    cells = {"local": times, "instant": [t.replace(tzinfo=dt.UTC) for t in times], "day": days}
    return *load(table), cells


def test_times(load):
    times = moments()
    data, where, cells = loaded_times(load, times)
    for i, axis in enumerate(TIME_AXES):
        outside = ("drop", "clip")[i % 2]
        for name, values in cells.items():
            if name == "instant" and axis.tz is None:
                with pytest.raises(DataError, match="tz='UTC'"):
                    count(data, Domain((axis,)), columns=name, **where)
                continue
            got = count(data, Domain((axis,)), columns=name, outside=outside, **where).values
            at = axis.index(values, outside)
            assert np.array_equal(got, np.bincount(at[at >= 0], minlength=axis.n)), (axis, name, outside)


FINE_AXES = [
    Instants("2024-03-01T12:00:00.000250", "2024-03-01T12:00:01", freq="250us", tz="UTC"),
    Instants("1900-01-01", "2101-01-01", freq="1us", tz="UTC"),  # 2^52.5 bins
    Instants("1969-12-31", "1970-01-02", freq="1ms"),
    Instants("1000-01-01", "9000-01-01", freq="7s", tz="UTC"),
]


def test_microseconds(load):
    """Steps below a second and very many steps: every engine gives the bins that Python gives, exactly."""
    near = [dt.datetime(2024, 3, 1, 12), dt.datetime(1970, 1, 1), dt.datetime(2050, 6, 1, 23, 59, 59)]
    steps = (-1_000_001, -1000, -1, 0, 1, 249, 250, 251, 999_999, 1_000_000)
    times = [moment + dt.timedelta(microseconds=step) for moment in near for step in steps]
    times += [dt.datetime(1900, 1, 1), dt.datetime(2100, 12, 31, 23, 59, 59, 999_999)]
    times += [
        dt.datetime(1, 1, 2),
        dt.datetime(9999, 12, 30, 1),
        dt.datetime(8999, 12, 31, 23, 59, 59, 123_457),
    ]
    data, where, cells = loaded_times(load, times)
    for i, axis in enumerate(FINE_AXES):
        outside = ("drop", "clip")[i % 2]
        for name, values in cells.items():
            if name == "instant" and axis.tz is None:
                continue
            bins, tallies = count(data, Domain((axis,)), columns=name, outside=outside, **where).held()
            at, many = np.unique(axis.index(values, outside), return_counts=True)
            want = dict(zip(at.tolist(), many.tolist(), strict=True))
            want.pop(-1, None)
            assert dict(zip(bins.tolist(), tallies.tolist(), strict=True)) == want, (axis, name)
    days_far = Instants("1900-01-01", "2101-01-01", freq="1y", tz="UTC")  # whole seconds beyond 32 bits
    for name, values in cells.items():
        got = count(data, Domain((days_far,)), columns=name, **where).values
        at = days_far.index(values)
        assert np.array_equal(got, np.bincount(at[at >= 0], minlength=days_far.n)), name


def test_endless_times_stop_no_fine_count(server):
    import psycopg

    with psycopg.connect(server.url(), autocommit=True) as connection:
        # The last moments that the server knows are beyond 2^63 microseconds.
        far = ("infinity", "-infinity", "294276-12-31 23:59:59", "4713-01-01 00:00:00 BC")
        moments = ", ".join(f"('{m}'::timestamp)" for m in (*far, "2024-03-01 12:00:00.5"))
        connection.execute(f"CREATE TABLE endless AS SELECT t, t::date AS d FROM (VALUES {moments}) AS v(t)")
    for column, found in (("t", [1999]), ("d", [])):
        bins, _ = count(server.url(), Domain((FINE_AXES[0],)), columns=column, table="endless").held()
        assert bins.tolist() == found


def test_days_beyond_the_reach_of_microseconds(spark, tmp_path):
    days = [0, 1, 2**31 - 1, -(2**31) + 1, 213_503_982, -213_503_982]
    pq.write_table(pa.table({"d": pa.array(days, pa.int32()).cast(pa.date32())}), tmp_path / "d.parquet")
    frame = spark.read.parquet(str(tmp_path / "d.parquet"))
    axis = Instants("1000-01-01", "9000-01-01", freq="7s", tz="UTC")
    _, tallies = count(frame, Domain((axis,)), columns="d").held()
    assert tallies.tolist() == [1, 1]


def test_bytes_that_are_no_text_have_no_hash(spark, tmp_path):
    cells = pa.array([b"a", b"\xff\xfe", b"\xed\xa0\x80", b""], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"k": cells}), tmp_path / "k.parquet")
    for data in (tmp_path / "k.parquet", spark.read.parquet(str(tmp_path / "k.parquet"))):
        bins, _ = count(data, Domain((Hashed(40),)), columns="k").held()
        assert bins.tolist() == sorted(Hashed(40).bin(key) for key in ("a", ""))


# --- one person, many records -------------------------------------------------------------------------------


def people(persons: int, rows: int, seed: int = 0) -> pa.Table:
    draws = np.random.default_rng(seed)
    unit = (draws.pareto(1.0, rows) * 3).astype(np.int64) % persons
    return pa.table({"u": unit, "x": unit.astype(np.float64), "y": draws.uniform(0, 10, rows)})


def test_no_person_counts_more_than_the_limit(load):
    """Every person has a bin of their own, so the counts are what each contributed."""
    table = people(100, 5000)
    per_person = np.bincount(table["u"].to_numpy(), minlength=100)
    assert per_person.max() > 500
    data, where = load(table)
    for limit in (1, 3, 50, 10**6):
        result = count(
            data, Domain((Integers(0, 99),)), columns="x", unit="u", max_contributions=limit, **where
        )
        assert np.array_equal(result.values, np.minimum(per_person, limit))
        assert result.sensitivity == limit
    axis = Regular(lo=0, hi=10, bins=20)
    exact = count(data, Domain((axis,)), columns="y", unit="u", max_contributions=5000, **where).values
    assert np.array_equal(exact, np.histogram(table["y"].to_numpy(), axis.edges)[0])


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.tuples(st.integers(0, 5), st.integers(-2, 12)), min_size=1, max_size=60),
    limit=st.integers(1, 4),
)
def test_generated_people(load, rows, limit):
    units, values = zip(*rows, strict=True)
    table = pa.table({"u": pa.array(units, pa.int64()), "x": pa.array(values, pa.int64())})
    axis = Integers(0, 9)
    data, where = load(table)
    inside = {u: sum(v == u and 0 <= x <= 9 for v, x in rows) for u in set(units)}
    got = count(data, Domain((axis,)), columns="x", unit="u", max_contributions=limit, **where).values
    assert got.sum() == sum(min(n, limit) for n in inside.values())
    whole = count(data, Domain((axis,)), columns="x", unit="u", max_contributions=60, **where).values
    assert np.array_equal(whole, np.bincount([x for x in values if 0 <= x <= 9], minlength=10))
    assert (got <= whole).all()


def test_units_without_a_value_are_left_out_and_long_numbers_stay_apart(load):
    big = Decimal(10) ** 25
    table = pa.table(
        {
            "u": pa.array([1.0, 1.0, math.nan, math.nan, None, None], pa.float64()),
            "d": pa.array([big, big, big + 1, big + 1, big + 2, None], pa.decimal128(38, 0)),
            "t": pa.array(["a", "a", "A", None, "b", "b"]),
            "x": [1.0] * 6,
        }
    )
    data, where = load(table)
    for unit, expected in (("u", 1), ("d", 3), ("t", 3)):
        got = count(data, Domain((Integers(1, 1),)), columns="x", unit=unit, **where).values
        assert got.tolist() == [expected], unit


def test_several_histograms_of_one_table(load):
    table = pa.table(
        {"u": np.repeat(np.arange(200), 5), "x": np.tile(np.arange(5.0), 200), "t": ["a", "b"] * 500}
    )
    data, where = load(table)
    numbers, labels = Domain((Integers(0, 4),)), Domain((Categories(("b", "a"), other=True),))
    edges = Domain((Variable(np.linspace(0, 4, 101)),))
    tallies = [
        Tally(numbers, ("x",), unit="u", max_contributions=2),
        Tally(labels, ("t",), where="x < 4", unit="u", max_contributions=5),
        Tally(edges, ("x",), unit="u", max_contributions=5),
    ]
    first, second, third = count_together(data, tallies, **where)
    assert first.values.sum() == 400 and first.sensitivity == 2
    assert second.values.tolist() == [400, 400, 0] and second.sensitivity == 5
    assert np.array_equal(third.values, 200 * (np.arange(100) % 25 == 0) + 200 * (np.arange(100) == 99))


def test_which_records_are_kept_is_left_to_chance(load):
    table = pa.table({"u": np.repeat(np.arange(2000), 5), "x": np.tile(np.arange(5.0), 2000)})
    data, where = load(table)
    first, second = (
        count(data, Domain((Integers(0, 4),)), columns="x", unit="u", max_contributions=2, **where).values
        for _ in range(2)
    )
    assert first.sum() == second.sum() == 4000
    # Each is a sum of 2,000 draws of variance 0.24 (standard deviation 22): eight of those.
    assert np.abs(first - 800).max() < 175
    assert not np.array_equal(first, second)


def _salted(monkeypatch, frame, salt, limit, axis):
    from dphist.records.engines import spark as module

    monkeypatch.setattr(module, "_salt", lambda: salt)
    return count(frame, Domain((axis,)), columns="x", unit="u", max_contributions=limit).values


def test_spark_keeps_the_same_records_when_it_runs_again(spark, monkeypatch):
    """Rows in other orders and partitions, as a stage that is run again may meet them."""
    rows = [
        (u, float(x), i) for i, (u, x) in enumerate((u, (u * x) % 11) for u in range(60) for x in range(9))
    ]
    frame = spark.createDataFrame(rows, "u long, x double, i long")
    orders = [frame.repartition(n, "i").sortWithinPartitions(by) for n, by in ((1, "i"), (3, "x"), (2, "u"))]
    orders.append(frame.orderBy(frame.i.desc()))
    found = [_salted(monkeypatch, f, "aa", 4, Integers(0, 10)) for f in orders]
    assert all(np.array_equal(found[0], other) for other in found)
    assert found[0].sum() == 60 * 4
    others = [_salted(monkeypatch, frame, salt, 4, Integers(0, 10)) for salt in ("ab", "ac")]
    assert not np.array_equal(found[0], others[0])
    assert not np.array_equal(others[0], others[1])
    # A collation for which 'a' is 'A': one person, whose texts differ.
    people = spark.sql(
        "SELECT COLLATE(u, 'UTF8_LCASE') AS u, x FROM VALUES "
        + ", ".join(f"('{u}{n}', {x}D)" for n in range(20) for u in "aA" for x in range(3))
        + " AS t(u, x)"
    )
    again = [
        _salted(monkeypatch, f, "aa", 2, Integers(0, 2))
        for f in (people, people.orderBy("x"), people.orderBy("u"))
    ]
    assert all(np.array_equal(again[0], other) for other in again)
    assert again[0].sum() == 20 * 2


def test_spark_keeps_every_record_of_a_person_equally_often(spark, monkeypatch):
    """Seven records in five bins, two of them taken twice: each is kept with probability 3/7."""
    places = [0, 0, 1, 2, 3, 3, 4]
    rows = [(u, float(x)) for u in range(3000) for x in places]
    frame = spark.createDataFrame(rows, "u long, x double")
    kept = _salted(monkeypatch, frame, "ad", 3, Integers(0, 4))
    assert kept.sum() == 3000 * 3
    expected = 3000 * 3 / 7 * np.bincount(places)
    # The salt is fixed, so this fails always or never. A bin of m records has variance 3000 m 12/49 (7-m)/6.
    m = np.bincount(places)
    assert np.abs((kept - expected) / np.sqrt(3000 * m * 12 / 49 * (7 - m) / 6)).max() < 5
    few = _salted(monkeypatch, frame.where("u < 9"), "ad", 7, Integers(0, 4))
    assert few.tolist() == (9 * m).tolist()


# --- bad input ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("together", [1, 7, 1 << 16])
def test_postgres_sends_thousands_of_bins_in_a_row(server, monkeypatch, together):
    import psycopg

    from dphist.records.engines import postgres

    monkeypatch.setattr(postgres, "_TOGETHER", together)
    values = [int(v) for v in np.random.default_rng(1).integers(0, 60, 500)]
    domain = Domain((Integers(-5, 49),))
    with psycopg.connect(server.url()) as connection:
        connection.execute("CREATE TEMP TABLE records (x int)")
        with connection.cursor() as cursor:
            cursor.executemany("INSERT INTO records VALUES (%s)", [(v,) for v in values])
        for where, kept in ((None, values), ("x < 0", []), ("x = 3", [v for v in values if v == 3])):
            found = count(connection, domain, columns="x", table="records", where=where).values
            assert found.tolist() == count(np.array(kept, dtype=int), domain).values.tolist()
        assert connection.execute("SELECT 1").fetchone() == (1,), "the connection is free for the next query"


def test_postgres_makes_its_rows_from_sorted_bins(server):
    """So that the server holds one row at a time, however many bins there are."""
    import psycopg

    from dphist.records.engines.postgres import _packed

    counting = "SELECT i::bigint AS bin, count(*) AS tally FROM generate_series(1, 200000) AS i GROUP BY i"
    with psycopg.connect(server.url()) as connection:
        plan = [line for (line,) in connection.execute(f"EXPLAIN {_packed(counting)}").fetchall()]
    assert plan[0].startswith("GroupAggregate"), plan


def test_parts_of_a_copy_may_be_cut_anywhere():
    from dphist.records.engines.postgres import _received

    def array(numbers: list[int]) -> bytes:
        header = b"".join(n.to_bytes(4, "big") for n in (1, 0, 20, len(numbers), 1))
        made = header + b"".join((8).to_bytes(4, "big") + n.to_bytes(8, "big") for n in numbers)
        return len(made).to_bytes(4, "big") + made

    rows = [([3, 1 << 40], [7, 1]), ([5], [1 << 50])]
    sent = bytes(19) + b"".join(b"\0\2" + array(b) + array(t) for b, t in rows) + b"\xff\xff"
    for size in (1, 3, 19, 50, len(sent)):
        parts = [memoryview(sent)[i : i + size] for i in range(0, len(sent), size)]
        assert [(b.tolist(), t.tolist()) for b, t in _received(parts)] == rows


def test_many_labels_are_one_part_of_the_query():
    """The query is copied and walked many times: a part for each of a million labels would take minutes."""
    pytest.importorskip("psycopg")
    from dphist.records.engines.postgres import Postgres

    labels = [f"l{i}" for i in range(5000)]
    made = Postgres.lookup(None, "x", {"label": labels, "bin": list(range(5000))})
    assert sum(1 for _ in made.walk()) < 100


def test_columns_that_cannot_be_binned(load):
    table = pa.table({"x": [1.0], "s": [SECRET], "day": pa.array([0], pa.date32())})
    data, where = load(table)
    numbers, labels = Domain((Integers(0, 1),)), Domain((Categories(("a",)),))
    times = Domain((Instants("2024-01-01", "2024-02-01"),))
    for column, domain, words in (
        ("s", numbers, "text"),
        ("day", numbers, "Instants"),
        ("x", labels, "categories"),
        ("x", times, "dates or times"),
        ("nobody", numbers, "no column"),
    ):
        with pytest.raises(DataError, match=words) as caught:
            count(data, domain, columns=column, **where)
        assert "7781" not in "".join(traceback.format_exception(caught.value))


def test_a_collation_cannot_count_a_record_twice(server, spark, tmp_path):
    """For a column in which 'a' equals 'A', one record would match both labels."""
    import duckdb
    import psycopg

    axis = Domain((Categories(("a", "A")),))
    path = tmp_path / "c.duckdb"
    with duckdb.connect(str(path)) as database:
        database.execute(
            "CREATE TABLE t (x VARCHAR COLLATE NOCASE); INSERT INTO t VALUES ('a'), ('a'), ('A')"
        )
    assert count(path, axis, columns="x", table="t").values.tolist() == [2, 1]
    with psycopg.connect(server.url()) as connection:
        connection.execute(
            "CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
        )
        connection.execute("CREATE TABLE coll (x text COLLATE ci)")
        connection.execute("INSERT INTO coll VALUES ('a'), ('a'), ('A')")
    assert count(server.url(), axis, columns="x", table="coll").values.tolist() == [2, 1]
    frame = spark.sql("SELECT x COLLATE UTF8_LCASE AS x FROM VALUES ('a'), ('a'), ('A') AS t(x)")
    assert count(frame, axis, columns="x").values.tolist() == [2, 1]


def test_postgres_addresses_that_lead_nowhere(server):
    one = Domain((Integers(0, 1),))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        closed = f"postgresql://u:pw-7781@127.0.0.1:{free.getsockname()[1]}/d"
    for url, words in (
        (server.url(password="pw-7781"), "refused the user or the password"),
        (server.url(database="nowhere"), "no database"),
        (closed, "no PostgreSQL server answers"),
        ("postgresql://[pw-7781", "not one of PostgreSQL"),
    ):
        with pytest.raises(DphistError, match=words) as caught:
            count(url, one, columns="x", table="t")
        shown = "".join(traceback.format_exception(caught.value))
        assert "7781" not in shown.replace(repr(url), "")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT DISTINCT x FROM visits",
        "SELECT x FROM visits LIMIT 3",
        "SELECT max(x) AS x FROM visits",
        "SELECT a.x FROM visits a JOIN visits b ON a.x = b.x",
        "SELECT x FROM visits, visits AS b",
        "SELECT x FROM visits WHERE x IN (SELECT 1)",
        "SELECT x FROM generate_series(1, 3) AS x",
        "SELECT pg_read_file('/etc/passwd') AS x",
        "SELECT 1 AS x; DROP TABLE visits",
        "DELETE FROM visits RETURNING x",
        "WITH d AS (DELETE FROM visits RETURNING x) SELECT x FROM d",
        "SELECT x FROM nowhere",
        "visits; DROP TABLE visits",
        'visits" --',
        "visit",
        "",
        None,
    ],
)
def test_postgres_tables_that_are_refused(server, text):
    import psycopg

    with psycopg.connect(server.url()) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS visits AS SELECT 1.0 AS x")
    with pytest.raises(DphistError):
        count(server.url(), Domain((Integers(0, 1),)), columns="x", table=text)
    assert count(server.url(), Domain((Integers(0, 1),)), columns="x", table="visits").values.tolist() == [
        0,
        1,
    ]


def test_a_connection_is_left_as_it_was(server):
    import psycopg

    one = Domain((Integers(0, 1),))
    with psycopg.connect(server.url()) as connection:
        connection.execute("CREATE TEMP TABLE mine AS SELECT 1 AS x")
        for table in ("mine", "public.visits_of_nobody"):
            try:
                assert count(connection, one, columns="x", table=table).values.tolist() == [0, 1]
            except DataError:
                assert table != "mine"
        # Still inside the transaction that the caller began, and it may write.
        connection.execute("INSERT INTO mine VALUES (0)")
        got = count(connection, one, columns="x", table="SELECT x FROM mine WHERE x < 1").values
        assert got.tolist() == [1, 0]
    with pytest.raises(UsageError, match="closed"):
        count(connection, one, columns="x", table="mine")


def test_keys_are_hashed_in_databases_of_utf_8_alone(server):
    """Elsewhere some text has no UTF-8, so that one record could stop the count."""
    import psycopg

    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE old ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    with psycopg.connect(server.url(database="old"), autocommit=True) as connection:
        connection.execute("CREATE TABLE t AS SELECT 'a' AS x")
    with pytest.raises(UsageError, match="another encoding than UTF-8"):
        count(server.url(database="old"), Domain((Hashed(30),)), columns="x", table="t")


def test_postgres_is_only_read(server):
    from dphist.records.engines import postgres

    with postgres.connect(server.url(), table="SELECT 1 AS x", progress=False) as engine:
        import psycopg

        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            engine.connection.execute("CREATE TABLE hacked (x int)")


def test_a_server_that_dies_during_the_count_charges_nothing(tmp_path):
    pytest.importorskip("psycopg", reason="the extra 'postgres' is not installed")
    import psycopg

    import dphist
    from dphist.privacy.ledger import MemoryLedger

    victim = Server()
    try:
        with psycopg.connect(victim.url()) as connection:
            connection.execute("CREATE TABLE t AS SELECT generate_series(1, 3000000) AS x")
        book = MemoryLedger()
        running = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'COPY%'"

        def kill_while_it_counts() -> None:
            with psycopg.connect(victim.url(), autocommit=True) as watch:
                while watch.execute(running).fetchone() == (0,):
                    time.sleep(0.01)
            victim.kill()

        killer = threading.Thread(target=kill_while_it_counts, daemon=True)
        killer.start()
        with pytest.raises(DataError, match="went away"):
            dphist.histogram(
                victim.url(), bins=4, range=(0, 4e6), epsilon=1, column="x", unit="x", table="t", ledger=book
            )
        killer.join()
        assert book.spent("default") == 0
    finally:
        victim.stop()


def test_no_engine_quotes_a_record(load, capfd):
    data, where = load(pa.table({"x": [1.0, 2.0], "s": [SECRET, "1"]}))
    for options in (
        {"columns": "x", "where": "s + 1 > x"},
        {"columns": "s"},
        {"columns": "x", "where": "s"},
        {"columns": "x", "where": "s = 1 AND s LIKE x"},
        {"columns": "CAST(s AS DOUBLE PRECISION)"},
        {"columns": "x", "where": "s > TIMESTAMP '2024-01-01'"},
        {"columns": "x", "where": "EXTRACT(year FROM s) > 2000"},
        {"columns": "x", "where": "100 / (x - 1) > 1 AND s IS NOT NULL"},
        {"columns": "x", "unit": "s"},
        {"columns": "nobody"},
    ):
        try:
            count(data, Domain((Integers(0, 3),)), **options, **where)
        except DphistError as error:
            assert "7781" not in "".join(traceback.format_exception(error))
            assert error.__cause__ is None and error.__context__ is None
    assert "7781" not in "".join(capfd.readouterr())


def test_a_cut_parquet_file_and_a_missing_one_in_spark(spark, tmp_path, capfd):
    path = tmp_path / "p.parquet"
    pq.write_table(pa.table({"x": np.arange(100_000.0)}), path)
    frame = spark.read.parquet(str(path))
    assert count(frame, Domain((Integers(0, 9),)), columns="x").values.tolist() == [1] * 10
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(DataError, match="cut short"):
        count(frame, Domain((Integers(0, 9),)), columns="x")
    path.unlink()
    with pytest.raises(DataError, match="missing"):
        count(frame, Domain((Integers(0, 9),)), columns="x")


def test_no_record_of_spark_makes_an_expression_fail(spark):
    frame = spark.sql("SELECT * FROM VALUES (1, 'a(', '\\\\'), (2, 'b', 'c') AS t(x, s, p)")
    for where in ("s RLIKE p", "p RLIKE s", "s LIKE p", "s ILIKE CONCAT(p, 'a')"):
        with pytest.raises(UsageError, match="written out"):
            count(frame, Domain((Integers(0, 3),)), columns="x", where=where)
    for where in ("s RLIKE '^b'", "s LIKE 'b%'", "100 / (x - 1) > 1", "CAST(s AS INT) IS NULL AND x = 2"):
        assert count(frame, Domain((Integers(0, 3),)), columns="x", where=where).values.tolist()[2] == 1
    wide = spark.sql("SELECT * FROM VALUES (9223372036854775807L), (1L) AS t(x)")
    for column in (
        "x + 1",
        "x * 2",
        "SQRT(-x)",
        "LN(x - 1)",
        "LENGTH(SUBSTRING(CAST(x AS STRING), 1, CAST(x AS INT)))",
    ):
        count(wide, Domain((Integers(0, 3),)), columns=column)


def test_a_spark_session_is_left_as_it_was(spark):
    frame = spark.sql("SELECT 1 AS x")
    before = spark.conf.get("spark.sql.ansi.enabled")
    for column in ("x", "nobody"):
        try:
            count(frame, Domain((Integers(0, 1),)), columns=column)
        except DataError:
            assert column == "nobody"
        assert spark.conf.get("spark.sql.ansi.enabled") == before
        assert not [t for t in spark.catalog.listTables() if t.name.startswith("dphist_")]
    with pytest.raises(UsageError, match="spark.table"):
        count(frame, Domain((Integers(0, 1),)), columns="x", table="t")
    with pytest.raises(UsageError, match="DataFrame"):
        count(spark, Domain((Integers(0, 1),)), columns="x")
    with pytest.raises(UsageError, match=r"\$\{"):
        count(frame, Domain((Integers(0, 1),)), columns="x", where="'${env:HOME}' = 'a'")


def test_spark_without_java_and_after_its_end(tmp_path):
    """In a process of its own: one without Java, then one whose session is stopped."""
    pytest.importorskip("pyspark", reason="the extra 'spark' is not installed")
    code = (
        "from dphist.records.engines.spark import session\n"
        "from dphist.errors import DphistError\n"
        "try: session()\n"
        "except DphistError as e: print(type(e).__name__, e)\n"
    )
    for env in ({"JAVA_HOME": str(tmp_path)}, {"PATH": str(tmp_path)}):
        clean = {k: v for k, v in os.environ.items() if k not in ("JAVA_HOME", "PATH")} | env
        out = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=clean, check=True
        )
        assert "UsageError Spark needs Java 17" in out.stdout, out.stderr


@pytest.mark.slow
def test_a_spark_that_is_gone(spark):
    """The Java process is killed under a session in a process of its own."""
    code = (
        "import os, signal, warnings; warnings.simplefilter('ignore')\n"
        "from dphist.records import count\n"
        "from dphist.records.engines import spark\n"
        "from dphist.domain import Domain, Integers\n"
        "from dphist.errors import DataError\n"
        "s = spark.session(cores=1, memory='512m')\n"
        "frame = s.sql('SELECT 1 AS x')\n"
        "one = Domain((Integers(0, 1),))\n"
        "assert count(frame, one, columns='x').values.tolist() == [0, 1]\n"
        "gateway = s.sparkContext._gateway\n"
        "os.kill(gateway.proc.pid, signal.SIGKILL); gateway.proc.wait()\n"
        "try: count(frame, one, columns='x')\n"
        "except DataError as e: print('DataError', e)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "DataError the Spark data cannot be reached" in out.stdout, out.stderr[-2000:]


# --- the documentation --------------------------------------------------------------------------------------


def test_the_examples_in_the_documentation_run(server, spark, tmp_path, monkeypatch):
    import duckdb
    import psycopg

    text = (Path(__file__).parents[2] / "docs" / "records.md").read_text("utf-8")
    blocks = [part.partition("```")[0] for part in text.split("```python\n")[1:]]
    assert len(blocks) == 3
    table = pa.table({"age": [30.0, 40.0], "ward": ["A", "B"], "patient_id": [1, 2]})
    monkeypatch.chdir(tmp_path)
    Path("visits").mkdir()
    pq.write_table(table, "visits/1.parquet")
    Path("visits.csv").write_text("age,ward,patient_id\n30,A,1\n40,B,2\n")
    with duckdb.connect("hospital.duckdb") as database:
        database.execute("CREATE TABLE visits AS FROM 'visits/1.parquet'")
    _, where = in_postgres(server, table)
    spark.read.parquet(str(tmp_path / "visits")).createOrReplaceTempView("visits")
    with psycopg.connect(server.url()) as connection:
        connection.execute(f"CREATE TEMP VIEW visits AS SELECT * FROM {where['table']}")
        scope = {"frame": table, "connection": connection, "spark": spark}
        for block in blocks:
            block = block.replace("postgresql://reader:secret@db.example.org/hospital", server.url())
            block = block.replace('table="visits", **ages)\nhistogram(connection', "CONNECTION")
            block = block.replace("CONNECTION", f'table="{where["table"]}", **ages)\nhistogram(connection')
            block = block.replace("s3a://bucket/visits/", str(tmp_path / "visits"))
            exec(block, scope)
            scope["ages"]["epsilon"] = 10**6  # at which the noise is zero, to see what was counted
            last = [line for line in block.splitlines() if line.startswith("histogram(")]
            assert len(last) >= 2
            for line in last:
                assert eval(line.partition("  #")[0], scope).total().value == (1 if "ward" in line else 2)
    spark.catalog.dropTempView("visits")


# --- time zones ---------------------------------------------------------------------------------------------

ZONES = ("UTC", "America/New_York", "Asia/Tokyo")


def _instants() -> tuple[list[dt.datetime], pa.Table]:
    times = [dt.datetime(2024, 3, 1, h, tzinfo=dt.UTC) for h in range(0, 24, 3)]
    table = pa.table({"t": pa.array(times, pa.timestamp("us", "UTC")), "x": [1.0] * len(times)})
    return times, table


@pytest.fixture
def elsewhere(request, load):
    """Let an engine stand in a zone that is not ours; return how data is given to it."""
    params = request.node.callspec.params
    if params["load"] == "spark":
        session = request.getfixturevalue("spark")
        before = session.conf.get("spark.sql.session.timeZone")
        session.conf.set("spark.sql.session.timeZone", params["zone"])
        request.addfinalizer(lambda: session.conf.set("spark.sql.session.timeZone", before))
    if params["load"] == "postgres":
        return lambda table: (f"{(found := load(table))[0]}?options=-cTimeZone%3D{params['zone']}", found[1])
    return load


@pytest.mark.parametrize("zone", ZONES[1:])
def test_expressions_follow_the_declared_clock_and_no_other(elsewhere, zone):
    times, table = _instants()
    data, where = elsewhere(table)
    one, hours = Domain((Integers(1, 1),)), Domain((Integers(0, 23),))
    since = "t >= TIMESTAMP '2024-03-01 12:00:00'"
    for declared in (None, *ZONES):
        clock = ZoneInfo(declared or "UTC")
        shown = [t.astimezone(clock).replace(tzinfo=None) for t in times]
        late = sum(t >= dt.datetime(2024, 3, 1, 12) for t in shown)
        assert count(data, one, columns="x", where=since, timezone=declared, **where).values == [late]
        got = count(data, hours, columns="EXTRACT(hour FROM t)", timezone=declared, **where).values
        assert got.tolist() == np.bincount([t.hour for t in shown], minlength=24).tolist()
    # Bins of time bring their zone along.
    days = Domain((Instants("2024-03-01", "2024-03-03", tz="Asia/Tokyo"),))
    assert count(data, days, columns="t", where=since, **where).values.tolist() == [4, 3]


def test_a_session_and_a_connection_keep_their_zone(server, spark):
    import psycopg

    _, table = _instants()
    url, where = in_postgres(server, table)
    with psycopg.connect(url) as connection:
        connection.execute("SET TIME ZONE 'Asia/Tokyo'")
        count(connection, Domain((Integers(1, 1),)), columns="x", **where)
        assert connection.execute("SHOW TimeZone").fetchone() == ("Asia/Tokyo",)
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        count(spark.sql("SELECT 1 AS x"), Domain((Integers(1, 1),)), columns="x", timezone="America/New_York")
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


# --- what files state about themselves ----------------------------------------------------------------------


@pytest.mark.parametrize("format", ["parquet", "orc"])
def test_one_record_does_not_move_the_nans_of_a_file_in_spark(spark, tmp_path, format):
    for name, values in (("a", []), ("b", [1.0]), ("c", [1.0, 9.0])):
        path = tmp_path / f"{name}.{format}"
        table = pa.table({"x": [math.nan] * 100 + values, "y": [1] * (100 + len(values))})
        (pq.write_table if format == "parquet" else orc.write_table)(table, str(path))
        frame = getattr(spark.read, format)(str(path))
        before = spark.conf.get(f"spark.sql.{format}.filterPushdown")
        for where, expected in (("x > 5", 100 + len(values[1:])), ("x < 5", len(values[:1]))):
            got = count(frame, Domain((Integers(1, 1),)), columns="y", where=where).values
            assert got.tolist() == [expected], (name, where)
        assert spark.conf.get(f"spark.sql.{format}.filterPushdown") == before


# --- what a check tells -------------------------------------------------------------------------------------

CHECKED = pa.table(
    {
        "x": pa.array([1.0, 2.0, None, math.nan, 50.0, -3.0, 4.0, 4.0, 4.0, 5.0, 6.0], pa.float64()),
        "t": pa.array(["a", "A ", "b", "", None, "zz", "a", "a", "b", "b", "a"]),
        "n": pa.array(["1", "1,5", "x", "", None, "4", "5", "6", "7", "8", "9"]),
        "d": pa.array([None, dt.date(1999, 1, 1), *[dt.date(2024, 1, day) for day in range(1, 10)]]),
        "u": pa.array(["p", "p", "q", "q", "q", "q", "p", "p", "p", None, ""]),
    }
)


def test_a_check_tells_of_every_record_as_it_is_counted(load):
    data, where = load(CHECKED)
    number, text = Regular(lo=0, hi=10, bins=100), Categories(("a", "b"))
    to_double = "CAST(n AS DOUBLE PRECISION)" if "table" in where else "CAST(n AS DOUBLE)"
    for axes, columns, options, expected in (
        ((number,), "x", {}, {"missing": 2, "outside": 2}),
        ((number,), "x", {"outside": "clip"}, {"missing": 2}),
        ((number,), "x + 1", {"where": "u <> ''"}, {"filtered": 2, "missing": 2, "outside": 2}),
        ((Integers(0, 9),), to_double, {}, {"missing": 2, "unreadable": 2}),
        ((text,), "t", {}, {"missing": 2, "unknown": 2}),
        ((Categories(("a", "b"), other=True, null=True),), "t", {}, {}),
        ((Instants("2024-01-01", "2025-01-01", freq="1d"),), "d", {}, {"missing": 1, "outside": 1}),
        (
            (number, text),
            ("x", "t"),
            {"unit": "u"},
            {"missing": 2, "outside": 2, "unknown": 1, "bounded": 3, "without_unit": 1},
        ),
        (
            (number,),
            "x",
            {"unit": "u", "max_contributions": 2},
            {"missing": 2, "outside": 2, "bounded": 3, "without_unit": 1},
        ),
    ):
        domain = Domain(axes)
        asked = {"columns": columns} | options | where
        found = check(data, domain, **asked)
        got = {name: getattr(found, name) for name in LEFT_OUT if getattr(found, name)}
        assert got == expected, (columns, options, found)
        assert found.read == CHECKED.num_rows == found.counted + sum(got.values())
        assert found.counted == count(data, domain, **asked).values.sum()
