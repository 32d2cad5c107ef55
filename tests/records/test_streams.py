"""DuckDB relations and connections, and any object that streams Arrow: counted as a table of theirs is."""

import pytest

import dphist
from dphist import records
from dphist.domain import Categories, Domain, Instants, Integers
from dphist.errors import DataError, UsageError

duckdb = pytest.importorskip("duckdb")
pa = pytest.importorskip("pyarrow")

AGES = Domain((Integers(0, 9),))
KINDS = Domain((Categories(("a", "b"), "rest", "none"),))
ROWS = """
    SELECT CAST(range % 10 AS INTEGER) AS age,
        CASE WHEN range % 5 > 0 THEN chr(97 + (range % 3)::INT) END AS kind,
        'p' || (range % 4) AS person, TIMESTAMP '2024-01-01' + to_hours(range::INT) AS seen,
        CAST(range AS HUGEINT) AS huge, CAST('x' AS ENUM ('x', 'y')) AS e
    FROM range(100)
"""


class Stream:
    """An object that has nothing but the interface."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


@pytest.fixture
def connection():
    with duckdb.connect() as made:
        made.execute(f"CREATE TABLE visits AS {ROWS}")
        yield made


def table(connection):
    return connection.sql("SELECT * FROM visits").to_arrow_table()


FORMS = {
    "relation": lambda c: (c.sql("SELECT * FROM visits"), {}),
    "relation of a table": lambda c: (c.table("visits"), {}),
    "connection": lambda c: (c, {"table": "visits"}),
    "stream": lambda c: (Stream(table(c)), {}),
}


def exact(counts):
    return counts.values


@pytest.mark.parametrize("form", FORMS)
def test_each_is_counted_as_an_arrow_table_is(connection, form):
    asked = [
        (AGES, {"columns": "age"}),
        (AGES, {"columns": "age + 1", "where": "kind = 'a'"}),
        (KINDS, {"columns": "kind"}),
        (Domain((Categories(("x", "y")),)), {"columns": "e"}),
        (Domain((Instants("2024-01-01", "2024-01-06", "1d", "UTC"),)), {"columns": "seen"}),
        (Domain((Integers(0, 120),)), {"columns": "huge"}),
        (Domain((*AGES.axes, *KINDS.axes)), {"columns": ("age", "kind")}),
    ]
    for domain, how in asked:
        data, more = FORMS[form](connection)
        found = records.count(data, domain, **how, **more)
        assert exact(found).tolist() == exact(records.count(table(connection), domain, **how)).tolist()
        assert exact(found).sum() > 0


@pytest.mark.parametrize("form", FORMS)
def test_contributions_are_bounded(connection, form):
    data, more = FORMS[form](connection)
    found = records.count(data, AGES, columns="age", unit="person", max_contributions=3, **more)
    assert found.sensitivity == 3 and exact(found).sum() == 12


@pytest.mark.parametrize("form", FORMS)
def test_a_check_and_a_release(connection, form, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = dphist.Plan(integers=(0, 9), column="age", epsilon=1)
    data, more = FORMS[form](connection)
    assert dphist.Plan(integers=(0, 4), column="age", epsilon=1, **more).check(data).counted == 50
    data, more = FORMS[form](connection)
    release = dphist.histogram(data, integers=(0, 9), column="age", epsilon=1, **more)
    # What a database holds outlives this process, so that its budget is kept.
    assert release.provenance["journaled"] is (form != "stream")
    assert release.domain == plan.domain


def test_tables_of_a_connection(connection):
    connection.execute("CREATE SCHEMA s; CREATE TABLE s.inner AS SELECT 3 AS age")
    connection.execute("CREATE TEMP TABLE mine AS SELECT 4 AS age; CREATE VIEW seen AS SELECT 5 AS age")
    for name, age in (("s.inner", 3), ("mine", 4), ("seen", 5)):
        assert exact(records.count(connection, AGES, columns="age", table=name))[age] == 1
    with pytest.raises(UsageError, match="needs table=.*visits"):
        records.count(connection, AGES, columns="age")
    with pytest.raises(UsageError, match="Did you mean 'visits'"):
        records.count(connection, AGES, columns="age", table="visit")
    with pytest.raises(UsageError, match=r"connection.sql\(\.\.\.\)"):
        records.count(connection, AGES, columns="age", table="SELECT * FROM visits LIMIT 3")
    with pytest.raises(UsageError, match="a table already"):
        records.count(connection.table("visits"), AGES, columns="age", table="visits")


def test_the_owner_has_the_connection_back_whatever_happens(connection):
    with pytest.raises(DataError):
        records.count(connection.table("visits"), AGES, columns="aeg")
    with pytest.raises(DataError):
        records.count(connection, AGES, columns="aeg", table="visits")
    assert connection.execute("SELECT count(*) FROM visits").fetchall() == [(100,)]
    zone = connection.execute("SELECT current_setting('TimeZone')").fetchall()
    records.count(connection, AGES, columns="age", table="visits", timezone="Asia/Tokyo")
    assert connection.execute("SELECT current_setting('TimeZone')").fetchall() == zone
    connection.execute("CREATE TABLE more AS SELECT 1 AS x")  # nothing is locked or sealed


def test_no_error_quotes_a_record(connection):
    connection.execute("CREATE TABLE secret AS SELECT 'age-of-Bob' AS age")
    bad = connection.sql("SELECT CAST(age AS INTEGER) AS age FROM secret")
    with pytest.raises(DataError, match="TRY_CAST") as error:
        records.count(bad, AGES, columns="age")
    assert "Bob" not in str(error.value) and error.value.__cause__ is None

    class Broken:
        def __arrow_c_stream__(self, requested_schema=None):
            raise RuntimeError("age-of-Bob")

    with pytest.raises(UsageError, match="records of type Broken cannot be counted") as error:
        records.count(Broken(), AGES, columns="age")
    assert "Bob" not in str(error.value) and error.value.__cause__ is None


def test_a_closed_connection(connection):
    connection.close()
    with pytest.raises(UsageError, match="closed"):
        records.count(connection, AGES, columns="age", table="visits")


def test_text_options_are_for_text(connection):
    with pytest.raises(UsageError, match="describe CSV"):
        records.count(connection.table("visits"), AGES, columns="age", decimal=",")


@pytest.mark.parametrize("odd", ["secret", b"\xff", 2.5, None])
def test_a_record_of_a_subclass_of_pandas_does_not_change_how_others_are_read(odd):
    pandas = pytest.importorskip("pandas")

    class Mine(pandas.DataFrame):
        """As libraries of maps and surveys have them."""

    class Ages(pandas.Series):
        """As above."""

    for ages in ([1, 2, 3], ["1", "2", "3"]):
        for cells in (ages, [*ages, odd]):
            column = pandas.Series(cells, dtype=object)
            alike = [column.to_frame("age"), Mine({"age": column})]
            plain, own = (records.count(each, AGES, columns="age") for each in alike)
            assert exact(own).tolist() == exact(plain).tolist()
            assert exact(own)[1] == exact(own)[3] == 1
            assert exact(records.count(Ages(column), AGES)).tolist() == exact(plain).tolist()


def test_a_subclass_of_polars_is_read_as_polars():
    polars = pytest.importorskip("polars")

    class Mine(polars.DataFrame):
        """As above."""

    assert exact(records.count(Mine({"age": [1, 2, 2]}), AGES, columns="age"))[2] == 2


@pytest.mark.parametrize("form", ["reader", "stream", "scanner", "table", "column"])
def test_a_stream_is_whole_in_every_time_zone(form):
    from pyarrow import dataset

    held = pa.table({"value": [1, 2, 2]})
    data = {
        "reader": held.to_reader(),
        "stream": Stream(held.to_reader()),
        "scanner": dataset.Scanner.from_batches(held.to_batches(), schema=held.schema),
        "table": held,
        "column": held["value"],
    }[form]
    both = [records.Tally(AGES, ("value",), timezone=zone) for zone in ("UTC", "Europe/Rome")]
    assert [exact(each)[2] for each in records.count_together(data, both)] == [2, 2]
