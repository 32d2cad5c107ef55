"""Release files (docs/release-format.md): written atomically, and checked when they are read."""

from __future__ import annotations

import csv
import errno
import filecmp
import itertools
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from dphist._common.leftovers import file_beside
from dphist._common.spent import Spent
from dphist._common.text import cell, comment, harmless
from dphist.domain import Domain
from dphist.domain.groups import Floats, Groups
from dphist.errors import DphistError, OutputError, ReleaseFileError, did_you_mean
from dphist.release.release import Release
from dphist.release.show import columns, decimal
from dphist.uncertainty.reading import error_model_from_dict

FORMAT, VERSION = "dphist-release", 1
PARQUET_KEY = "dphist"
ENDINGS = (".json", ".parquet", ".csv")
_FOREIGN = "{} is not a dphist release: give a file that Release.save wrote as .json or .parquet."
EXACT = float(1 << 53)  # below it every whole number is a double and back


def header(release: Release) -> dict[str, Any]:
    """Return the document without its values."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "simulated": release.simulated,
        "method": release.method,
        "parameters": release.parameters,
        "epsilon": str(release.epsilon),
        "charges": [
            {"purpose": c.purpose, "share": str(c.share), "epsilon": str(c.epsilon)} for c in release.charges
        ],
        "unit": release.unit,
        "sensitivity": release.sensitivity,
        "bounding": release.bounding or None,
        "domain": release.domain.to_dict(),
        "groups": release.groups.to_dict(),
        "error": release.error.to_dict(),
        "provenance": release.provenance,
        "versions": release.versions,
        "created": release.created,
        **({} if release.id is None else {"id": release.id}),
        "post": release.post,
    }


def document(release: Release) -> dict[str, Any]:
    """Return the whole document; the presentable values are there for other programs to read."""
    whole = header(release) | {"raw": _numbers(release.raw)}
    return whole if release.post == "none" else whole | {"values": _numbers(release.presentable)}


def written(document: dict[str, Any]) -> str:
    """Return a document as JSON; mappings that cannot be changed are written like others."""
    return json.dumps(document, allow_nan=False, separators=(",", ":"), default=dict)


def save(release: Release, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Write a release in the format its path's ending names; nothing but itself is replaced unasked."""
    target, write = Path(path), _writer(release, Path(path))
    empty = target.is_file() and not target.stat().st_size  # which holds nothing to lose
    try:
        _put(target, write, replace=overwrite or empty)
    except FileExistsError:
        raise OutputError(
            f"{str(target)!r} exists and is not this release, so it is not replaced: choose another name, or "
            "say overwrite=True."
        ) from None
    return target


def save_fresh(release: Release, path: str | os.PathLike[str]) -> Path:
    """Write a release under a name that no file has, counting up from the one asked for; return the name.

    Any number of processes may do so at once, and none writes over another's release.
    """
    write = _writer(release, Path(path))
    for target in _free_names(Path(path)):
        with suppress(FileExistsError):
            _put(target, write, replace=False)
            break
    return target


def fresh_name(path: Path) -> Path:
    """Return the name under which `save_fresh` would write now."""
    return next(_free_names(path))


def _free_names(wanted: Path) -> Iterator[Path]:
    others = (wanted.with_stem(f"{wanted.stem}-{i}") for i in itertools.count(2))
    return (name for name in itertools.chain([wanted], others) if not name.exists())


def _writer(release: Release, target: Path) -> Callable[[Path], object]:
    ending = target.suffix.lower()
    if ending == ".json":
        text = release.to_json()
        return lambda file: file.write_text(text, encoding="utf-8")
    if ending == ".parquet":
        return lambda file: _write_parquet(release, file)
    if ending == ".csv":
        return lambda file: _write_csv(release, file)
    raise OutputError(f"{target.name!r} has no ending that names a format: use {', '.join(ENDINGS)}.")


def load(path: str | os.PathLike[str]) -> Release:
    """Read a release that was saved as .json or .parquet; neither the records nor the ledger are needed.

    >>> path = dphist.from_counts([30, 20], epsilon=1).save("colours.json")
    >>> dphist.load(path).method
    'identity'
    """
    file = Path(path)
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        beside = [f.name for f in file.parent.glob("*") if f.suffix.lower() in (".json", ".parquet")]
        near = did_you_mean(file.name, beside) if beside else "Check the path."
        raise ReleaseFileError(f"there is no file {str(file)!r}. {near}") from None
    except IsADirectoryError:
        raise ReleaseFileError(f"{str(file)!r} is a directory; name the file in it.") from None
    except OSError as error:
        raise ReleaseFileError(f"{str(file)!r} cannot be read: {error.strerror}.") from None
    if not content.strip():
        raise ReleaseFileError(f"{file.name!r} is empty: it was never written whole. Save the release again.")
    if content.startswith(b"PAR1"):
        return _read_parquet(file)
    if content.startswith(b"# dphist"):
        raise ReleaseFileError(
            f"{file.name!r} is a table for other programs and lacks what a release needs; "
            "load the .json or .parquet of the same release."
        )
    if file.suffix.lower() != ".json" and content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] != b"{":
        raise ReleaseFileError(_FOREIGN.format(repr(file.name)))
    return read_document(_parse(content, file.name), repr(file.name))


def read_document(described: object, name: str) -> Release:
    """Return the release that a document describes, or raise ReleaseFileError with the reason."""
    if not isinstance(described, Mapping) or described.get("format") != FORMAT:
        raise ReleaseFileError(_FOREIGN.format(name))
    version = described.get("version")
    if type(version) is not int or version < 1:
        raise ReleaseFileError(f"{name} is damaged: its version is {version!r}. Fetch it again.")
    if version > VERSION:
        raise ReleaseFileError(
            f"{name} was written by a later dphist (format {version}, this one reads up to {VERSION}): "
            "pip install --upgrade dphist."
        )
    try:
        return _build(described)
    except KeyError as error:
        raise ReleaseFileError(
            f"{name} is damaged: it lacks {error}. Fetch it again, or upgrade dphist."
        ) from None
    except RecursionError:
        raise ReleaseFileError(f"{name} is damaged: it is nested too deeply. Fetch it again.") from None
    except (DphistError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise ReleaseFileError(f"{name} is damaged: {error} Fetch it again, or upgrade dphist.") from None


def _build(described: Mapping[str, Any]) -> Release:
    domain = Domain.from_dict(described["domain"])
    raw = _values(described["raw"], domain.n)
    groups = described["groups"]
    # Looked at before it is built: a damaged number must not ask for all the memory there is.
    if groups["kind"] not in ("singletons", "runs"):
        raise ValueError(f"unknown kind of groups {groups['kind']!r}; it may come from a later version.")
    if groups["kind"] == "singletons" and groups["n"] != domain.n:
        raise ValueError("its groups are for another number of bins.")
    release = Release(
        domain=domain,
        raw=raw,
        post=described["post"],
        groups=Groups.from_dict(groups),
        error=error_model_from_dict(described["error"], domain.n),
        epsilon=_fraction(described["epsilon"]),
        charges=tuple(
            Spent(_text(c["purpose"]), _fraction(c["share"]), _fraction(c["epsilon"]))
            for c in described["charges"]
        ),
        unit=_text(described["unit"]),
        sensitivity=described["sensitivity"],
        method=_text(described["method"]),
        parameters=_mapping(described["parameters"]),
        provenance=_mapping(described["provenance"]),
        versions=_mapping(described["versions"]),
        created=_text(described["created"]),
        simulated=_flag(described["simulated"]),
        id=_identifier(described["id"]) if "id" in described else None,
    )
    if "values" in described:
        values = _values(described["values"], domain.n)
        if not (_alike(values, release.presentable) or _alike(values, _formerly(release))):
            raise ValueError("its values do not follow from its raw values.")
    return release


def _alike(values: Floats, made: Floats) -> bool:
    return np.allclose(values, made, rtol=1e-9, atol=1e-6)


def _formerly(release: Release) -> Floats:
    """Return the values that earlier versions wrote: the nearest, not negative, with the same total.

    As whole numbers, they were rounded down and the largest remainders went up. Such files open, with the
    values recomputed.
    """
    raw, total = release.raw, max(float(release.raw.sum()), 0.0)
    if release.post == "none":
        return raw
    if total == 0.0:
        return np.zeros_like(raw)
    falling = np.sort(raw)[::-1]
    lowered_by = (np.cumsum(falling) - total) / np.arange(1, raw.size + 1)
    positive = np.flatnonzero(falling > lowered_by)
    near: Floats = raw if raw.min() >= 0.0 else np.maximum(raw - lowered_by[positive[-1]], 0.0)
    if release.post == "nonneg":
        return near
    low = np.floor(near)
    missing = max(round(total) - int(low.sum()), 0)
    low[np.argsort(low - near, kind="stable")[:missing]] += 1.0
    return low


def _parse(content: bytes, name: str) -> object:
    try:
        return json.loads(content.decode("utf-8-sig"), parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise ReleaseFileError(f"{name!r} is not text: it is not a release, or it is damaged.") from None
    except json.JSONDecodeError as error:
        raise ReleaseFileError(
            f"{name!r} is not whole JSON (line {error.lineno}, column {error.colno}: {error.msg}): it is cut "
            "short, damaged or something else. Fetch or save it again."
        ) from None
    except RecursionError:
        raise ReleaseFileError(f"{name!r} is damaged: it is nested too deeply. Fetch it again.") from None
    except ValueError as error:
        raise ReleaseFileError(f"{name!r} is damaged: {error} Fetch it again, or upgrade dphist.") from None


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"it holds {word}, which is not a finite number.")


def _values(numbers: object, n: int) -> Floats:
    if isinstance(numbers, np.ndarray) and numbers.shape == (n,):  # a column of doubles
        return numbers.astype(np.float64, copy=False)
    if not isinstance(numbers, list) or len(numbers) != n:
        found = len(numbers) if isinstance(numbers, list) else "no list of"
        raise ValueError(f"its domain has {n} bins and it holds {found} values.")
    if not set(map(type, numbers)) <= {int, float}:
        raise ValueError("a value is not a number.")
    return np.array(numbers, dtype=np.float64)


def _fraction(text: object) -> Fraction:
    # Not all that Fraction reads: "1e999999999" would take all the memory there is.
    if not isinstance(text, str) or not re.fullmatch(r"[0-9]{1,4000}(/0*[1-9][0-9]{0,3999})?", text):
        raise ValueError(f"{str(text)[:40]!r} is not a fraction such as '1/10'.")
    return Fraction(text)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{str(value)[:40]!r} should be text.")
    return value


def _identifier(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[0-9a-f]{32}", value):
        raise ValueError(f"{str(value)[:40]!r} should be an identifier of 32 hexadecimal digits.")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{str(value)[:40]!r} should be true or false.")
    return value


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{str(value)[:40]!r} should be an object.")
    return value


def _numbers(values: Floats) -> list[int | float]:
    """Return values as numbers that read back as the same doubles; whole ones without a fraction."""
    whole = (values == np.trunc(values)) & (np.abs(values) <= EXACT)
    if whole.all():
        return list(values.astype(np.int64).tolist())
    return [int(v) if w else v for v, w in zip(values.tolist(), whole.tolist(), strict=True)]


def _put(target: Path, write: Callable[[Path], object], *, replace: bool) -> None:
    """Let a function write a file beside the target, then put it in the target's place in one step.

    Without ``replace``, a file that is there by then stays, and this raises FileExistsError unless it is the
    same to the last byte.
    """
    target = target.resolve()  # through links: the file they point at is replaced, not the link
    if target.is_dir():
        raise OutputError(f"{str(target)!r} is a directory; name a file in it.")
    if target.exists() and not target.is_file():
        raise OutputError(f"{str(target)!r} is not an ordinary file and is left alone; choose another.")
    if not target.parent.is_dir():
        raise OutputError(f"there is no directory {str(target.parent)!r}; create it first.")
    try:
        with file_beside(target) as beside:
            write(beside)
            _sync(beside)
            if replace:
                os.replace(beside, target)  # noqa: PTH105 - named as the promise it makes
            elif not (target.exists() and filecmp.cmp(beside, target, shallow=False)):
                _name_once(beside, target)
    except FileExistsError:
        raise
    except OSError as error:
        raise OutputError(_why(error, target)) from error


def _name_once(file: Path, name: Path) -> None:
    """Give a file another name, or raise FileExistsError."""
    try:
        name.hardlink_to(file)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        name.open("xb").close()
        try:
            os.replace(file, name)  # noqa: PTH105
        except BaseException:
            name.unlink()
            raise


def _sync(file: Path) -> None:
    with file.open("rb") as opened:
        os.fsync(opened.fileno())


def _why(error: OSError, target: Path) -> str:
    left = "What was there before is untouched."
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{str(target)!r} cannot be written: no permission. Choose another place. {left}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{str(target)!r} cannot be written: the disk is full. Free some space and save again. {left}"
    return f"{str(target)!r} cannot be written: {error.strerror or error}. Save again or elsewhere. {left}"


def _write_csv(release: Release, file: Path) -> None:
    table = columns(release)
    with file.open("w", encoding="utf-8", errors="backslashreplace", newline="") as out:
        for name, text in (
            ("method", release.method),
            ("epsilon", decimal(release.epsilon)),
            ("unit", release.unit),
            ("simulated", "yes: not private" if release.simulated else "no"),
            *([("bounding", release.bounding)] if release.bounding else []),
        ):
            out.write(f"# dphist {name}: {comment(text)}\n")
        rows = csv.writer(out, lineterminator="\n")
        rows.writerow(table)
        rows.writerows(zip(*(_cells(column) for column in table.values()), strict=True))


def _cells(column: NDArray[Any]) -> list[Any]:
    if column.dtype.kind != "f":
        texts = column.tolist()
        return [harmless(cell(text), keep="") if isinstance(text, str) else text for text in texts]
    finite = np.isfinite(column)
    filled = _numbers(np.where(finite, column, 0.0))
    if finite.all():
        return filled
    both = zip(column.tolist(), filled, strict=True)
    return ["" if math.isnan(v) else v if math.isinf(v) else number for v, number in both]


def _write_parquet(release: Release, file: Path) -> None:
    import duckdb

    table = {
        name: np.array([str(v).encode("utf-8", "backslashreplace").decode() for v in column], dtype=object)
        if column.dtype == object
        else column
        for name, column in columns(release).items()
    }
    text = written(header(release))
    try:
        with duckdb.connect() as db:
            db.register("bins", table)
            db.execute(
                f"COPY (FROM bins) TO ? (FORMAT parquet, COMPRESSION zstd, KV_METADATA {{{PARQUET_KEY}: ?}})",
                [str(file), text],
            )
    except duckdb.Error as error:
        raise OSError(errno.EIO, str(error).splitlines()[0]) from error


def _read_parquet(file: Path) -> Release:
    import duckdb

    described, rows, types = _parquet_header(file)
    if isinstance(described, dict) and described.get("format") == FORMAT:
        # A small file may stand for billions of rows: nothing is read before their number is right.
        n = _bins(described)
        if rows != n:
            raise ReleaseFileError(
                f"{file.name!r} is damaged: its domain has {n} bins and it holds {rows} values. "
                "Fetch it again."
            )
        if types == [("BYTE_ARRAY",)]:  # texts, each of which may be as long as it likes
            raise ReleaseFileError(f"{file.name!r} is damaged: its values are not numbers. Fetch it again.")
        try:
            with duckdb.connect() as db:
                found = db.execute("SELECT raw::DOUBLE AS raw FROM read_parquet(?)", [str(file)]).fetchnumpy()
        except duckdb.Error as error:
            raise _damaged(file, error) from None
        described["raw"] = np.ma.filled(found["raw"], np.nan)
    return read_document(described, repr(file.name))


def _bins(described: Mapping[str, Any]) -> int:
    """Return how many bins a document is about; -1 if it cannot say so."""
    with suppress(DphistError, KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return Domain.from_dict(described["domain"]).n
    return -1


def _parquet_header(file: Path) -> tuple[object, int, list[Any]]:
    """Return the document in a Parquet file's footer, how many rows there are, and the values' type."""
    import duckdb

    name = str(file)
    try:
        with duckdb.connect() as db:
            found = db.execute(
                "SELECT value FROM parquet_kv_metadata(?) WHERE decode(key) = ?", [name, PARQUET_KEY]
            ).fetchall()
            rows = db.execute("SELECT num_rows FROM parquet_file_metadata(?)", [name]).fetchall()
            types = db.execute("SELECT type FROM parquet_schema(?) WHERE name = 'raw'", [name]).fetchall()
    except duckdb.Error as error:
        raise _damaged(file, error) from None
    if len(found) != 1 or len(rows) != 1:
        raise ReleaseFileError(
            f"{file.name!r} is Parquet but not a dphist release: give a file that Release.save wrote."
        )
    return _parse(found[0][0], file.name), int(rows[0][0]), types


def _damaged(file: Path, error: Exception) -> ReleaseFileError:
    reason = str(error).splitlines()[0]
    return ReleaseFileError(f"{file.name!r} is damaged: {reason}. Fetch or save it again.")
