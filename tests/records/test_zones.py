"""Whose clock an expression follows is declared: no machine, server or session has a say."""

from __future__ import annotations

import datetime as dt
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dphist
from dphist import cli
from dphist.domain import Domain, Instants, Integers
from dphist.errors import UsageError
from dphist.privacy.ledger import MemoryLedger
from dphist.records import count


def test_the_machines_zone_makes_no_difference(tmp_path):
    """In processes of their own: a time zone is taken from the environment once."""
    times = [dt.datetime(2024, 3, 1, h, tzinfo=dt.UTC) for h in range(0, 24, 3)]
    rows = [{"t": t.isoformat(), "x": 1} for t in times]
    pq.write_table(
        pa.table({"t": pa.array(times, pa.timestamp("us", "UTC")), "x": [1] * 8}), tmp_path / "d.parquet"
    )
    (tmp_path / "d.csv").write_text("t,x\n" + "".join(f"{r['t']},1\n" for r in rows))
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    with duckdb.connect(str(tmp_path / "d.duckdb")) as made:
        made.execute(f"CREATE TABLE t AS SELECT * FROM '{tmp_path / 'd.parquet'}'")
    with closing(sqlite3.connect(tmp_path / "d.sqlite")) as made:
        made.execute("CREATE TABLE t (t TEXT, x INTEGER)")
        made.executemany("INSERT INTO t VALUES (?, 1)", [(r["t"],) for r in rows])
        made.commit()
    code = (
        "import sys; from dphist import Domain, Integers; from dphist.records import count\n"
        "for name in sys.argv[1:]:\n"
        "    table = 't' if name.endswith(('duckdb', 'sqlite')) else None\n"
        "    for where in ('t >= TIMESTAMP \\'2024-03-01 06:00:00\\'', 'EXTRACT(hour FROM t) >= 6'):\n"
        "        one = Domain((Integers(1, 1),))\n"
        "        print(count(name, one, columns='x', where=where, table=table).values)\n"
    )
    names = [str(p) for p in sorted(tmp_path.iterdir())]
    for zone in ("UTC", "America/New_York", "Asia/Tokyo"):
        run = subprocess.run(
            [sys.executable, "-c", code, *names],
            env=os.environ | {"TZ": zone},
            capture_output=True,
            text=True,
            check=True,
        )
        assert run.stdout.split("\n")[:-1] == ["[6]"] * 10, (zone, run.stdout, run.stderr)


def test_zones_that_are_refused_before_anything_is_read(tmp_path):
    """The file does not exist, and that is not what is complained about."""
    missing, one = tmp_path / "missing.csv", Domain((Integers(0, 1),))
    for zone in ("Europe/Atlantis", "", "../etc", "localtime", 5, "UTC'; SELECT 1"):
        with pytest.raises(UsageError, match="time zone"):
            count(missing, one, columns="x", timezone=zone)
        with pytest.raises(UsageError, match="time zone"):
            dphist.Plan(bins=Integers(0, 1), epsilon=1, timezone=zone)
    berlin = Domain((Instants("2024-01-01", "2024-02-01", tz="Europe/Berlin"),))
    with pytest.raises(UsageError, match="clock of Europe/Berlin, and timezone says UTC"):
        count(missing, berlin, columns="x", timezone="UTC")
    assert dphist.Plan(bins=berlin, epsilon=1).zone == "Europe/Berlin"
    assert dphist.Plan(bins=berlin, epsilon=1, timezone="Europe/Berlin").zone == "Europe/Berlin"


def test_the_release_and_the_dry_run_name_the_zone(tmp_path, monkeypatch, capfd):
    path = tmp_path / "d.csv"
    path.write_text("x\n1\n")
    dphist.Ledger.open(tmp_path / "l.db", create=True)
    for timezone, expected in ((None, "UTC"), ("Asia/Tokyo", "Asia/Tokyo")):
        released = dphist.histogram(
            path, bins=2, range=(0, 2), column="x", epsilon=1, timezone=timezone, ledger=MemoryLedger()
        )
        assert released.provenance["timezone"] == expected
        declared = [] if timezone is None else ["--timezone", timezone]
        told = ["--bins", "2", "--range", "0", "2", "--column", "x", "--epsilon", "1", "--dry-run", "--json"]
        arguments = ["publish", str(path), *told, *declared, "--ledger", str(tmp_path / "l.db")]
        monkeypatch.setattr("sys.argv", ["dphist", *arguments])
        with suppress(SystemExit):
            cli.main()
        assert json.loads(capfd.readouterr().out)["timezone"] == expected
