"""DuckDB relations and connections, and any object that streams Arrow: counted as a table of theirs is."""

import json

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


def guessed(connection, folder, odd):
    """Return relations whose types DuckDB guesses, of records one of which may be odd, and one of views."""
    pandas = pytest.importorskip("pandas")
    ages = ["1", "2", *([odd] if odd else [])]
    (folder / "a.csv").write_text("age\n" + "".join(f"{age}\n" for age in ages))
    cells = [int(age) if age.isdigit() else age for age in ages]
    (folder / "a.json").write_text("".join(json.dumps({"age": cell}) + "\n" for cell in cells))
    frame = pandas.DataFrame({"age": pandas.Series(cells, dtype=object)})
    arrow = pa.table({"age": ages})
    csv = f"'{folder / 'a.csv'}'"
    connection.execute(f"CREATE OR REPLACE VIEW texts AS SELECT * FROM {csv}")
    connection.execute("CREATE OR REPLACE VIEW above AS SELECT * FROM texts")
    connection.execute(f"CREATE OR REPLACE MACRO rows_of() AS TABLE SELECT * FROM {csv}")
    connection.register("registered", frame)
    queries = {
        "csv": f"FROM {csv}",
        "read_csv": f"FROM read_csv({csv})",
        "types given": f"FROM read_csv({csv}, all_varchar = true)",
        "json": f"FROM '{folder / 'a.json'}'",
        "pandas": "FROM registered",
        "view": "FROM texts",
        "view of a view": "FROM above",
        "macro": "FROM rows_of()",
        "join": f"SELECT v.age FROM visits AS v JOIN {csv} AS c ON v.age = c.age::INT",
        "subquery": f"SELECT age FROM visits WHERE age <= (SELECT max(age)::INT FROM {csv})",
        "with": f"WITH q AS MATERIALIZED (FROM {csv}) FROM q",
        "pivot": f"PIVOT {csv} ON age USING count(*)",
        # The optimizer drops the file, because of what the table holds or what was guessed:
        "nothing in the table": f"SELECT c.age FROM {csv} AS c, (FROM visits WHERE age > 100) AS v",
        "by its type": f"SELECT age FROM {csv} WHERE typeof(age) = 'BIGINT'",
        "by its other type": f"SELECT age FROM {csv} WHERE typeof(age) = 'VARCHAR'",
    }
    yield from ((name, connection.sql(query)) for name, query in queries.items())
    yield "from_df", connection.from_df(frame)
    yield "from_arrow", connection.from_arrow(arrow)
    yield "filter", connection.read_csv(str(folder / "a.csv")).filter("age IS NOT NULL")
    yield "mapped", connection.table("visits").map(lambda found: found)


def test_relations_of_guessed_types_are_refused_whatever_the_records_are(connection, tmp_path):
    said = {}
    for odd in ("", "secret"):
        for name, relation in guessed(connection, tmp_path, odd):
            with pytest.raises(UsageError, match="CREATE TABLE with declared types") as error:
                records.count(relation, AGES, columns="age")
            assert said.setdefault(name, str(error.value)) == str(error.value)
            with pytest.raises(UsageError, match="CREATE TABLE with declared types"):
                dphist.Plan(integers=(0, 9), column="age", epsilon=1).check(relation)
        for view in ("texts", "above", "registered"):
            with pytest.raises(UsageError, match="CREATE TABLE with declared types"):
                records.count(connection, AGES, columns="age", table=view)
    assert len(said) == 19


def test_a_view_whose_file_is_guessed_differently_now_is_refused_in_the_same_words(connection, tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("age\n1\n")
    connection.execute(f"CREATE VIEW texts AS SELECT * FROM '{file}'")
    said = set()
    for records_ in ("1\n", "secret\n", '1;2,3\n"\n'):
        file.write_text("age\n" + records_)
        with pytest.raises(UsageError) as error:
            records.count(connection, AGES, columns="age", table="texts")
        said.add(str(error.value))
    assert len(said) == 1 and "secret" not in said.pop()


def test_relations_of_declared_types_are_counted(connection, tmp_path):
    connection.execute(f"COPY visits TO '{tmp_path / 'v.parquet'}'")
    connection.execute("CREATE INDEX by_age ON visits (age); CREATE VIEW seen AS SELECT age FROM visits")
    queries = (
        f"FROM '{tmp_path / 'v.parquet'}'",
        f"FROM read_parquet('{tmp_path / 'v.parquet'}')",
        "FROM seen",
        "SELECT age FROM visits WHERE age IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)",
        "WITH q AS MATERIALIZED (FROM visits) SELECT a.age FROM q AS a, (FROM q LIMIT 1)",
        "SELECT v.age FROM visits AS v WHERE EXISTS (FROM visits AS w WHERE w.age = v.age)",
        "SELECT (range % 10)::INT AS age FROM range(100)",
        "SELECT age FROM visits UNION ALL SELECT 99 AS age",
        "SELECT age FROM visits ORDER BY age LIMIT 1000",
        "SELECT unnest([age]) AS age FROM visits",
    )
    for query in queries:
        assert exact(records.count(connection.sql(query), AGES, columns="age")).tolist() == [10] * 10, query
    made = connection.sql("SELECT age FROM visits WHERE age < ?", params=[100]).filter("age >= 0")
    assert exact(records.count(made, AGES, columns="age")).tolist() == [10] * 10


def test_a_table_without_such_records_is_counted_as_one_with_them(connection):
    """The optimizer knows the extremes of a table, and replaces the scan by no rows at all."""
    for age in (100, 101):
        found = records.count(connection.sql("FROM visits WHERE age > 100"), AGES, columns="age")
        assert exact(found).sum() == 0
        connection.execute(f"INSERT INTO visits (age) VALUES ({age})")


def test_how_a_connection_explains_is_left_as_it_was(connection, tmp_path):
    (tmp_path / "a.csv").write_text("age\n1\n")
    for setting in ("physical_only", "optimized_only", "all"):
        connection.execute(f"SET explain_output = '{setting}'")
        before = connection.execute("SELECT current_setting('explain_output')").fetchall()
        records.count(connection.table("visits"), AGES, columns="age")
        with pytest.raises(UsageError):
            records.count(connection.read_csv(str(tmp_path / "a.csv")), AGES, columns="age")
        after = connection.execute("SELECT current_setting('explain_output')").fetchall()
        assert [v.lower() for (v,) in after] == [v.lower() for (v,) in before]
    listed = connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()
    assert listed == []


@pytest.mark.parametrize("cell", ["3", "secret"])
@pytest.mark.parametrize("kind", ["csv", "union", "json", "reader"])
def test_arrows_readers_of_text_are_refused_whatever_the_records_are(kind, cell, tmp_path):
    dataset, csv = pytest.importorskip("pyarrow.dataset"), pytest.importorskip("pyarrow.csv")
    (tmp_path / "t.csv").write_text(f"age\n5\n{cell}\n")
    (tmp_path / "t.json").write_text(f'{{"age": "5"}}\n{{"age": "{cell}"}}\n')
    read = {
        "csv": lambda: dataset.dataset(tmp_path / "t.csv", format="csv"),
        "union": lambda: dataset.dataset([dataset.dataset(tmp_path / "t.csv", format="csv")]),
        "json": lambda: dataset.dataset(tmp_path / "t.json", format="json"),
        "reader": lambda: csv.open_csv(tmp_path / "t.csv"),
    }
    with pytest.raises(UsageError, match="Give the files themselves") as caught:
        records.count(read[kind](), AGES, columns="age")
    assert "secret" not in str(caught.value)


def test_arrows_datasets_of_declared_types_are_counted(tmp_path):
    dataset, parquet = pytest.importorskip("pyarrow.dataset"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({"age": [1, 1, 7]}), tmp_path / "t.parquet")
    counts = records.count(dataset.dataset(tmp_path / "t.parquet"), AGES, columns="age").values
    assert counts.tolist() == [0, 2, 0, 0, 0, 0, 0, 1, 0, 0]
