"""Release files (docs/release-format.md): written atomically, and checked when they are read."""

from __future__ import annotations

import csv
import errno
import filecmp
import hashlib
import itertools
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from dphist._common.leftovers import file_beside
from dphist._common.spent import Spent
from dphist._common.text import cell, comment, harmless
from dphist.domain import Domain
from dphist.domain.groups import Floats, Groups
from dphist.errors import DataError, DphistError, OutputError, ReleaseFileError, did_you_mean
from dphist.release.release import Release
from dphist.release.show import Columns, columns, decimal
from dphist.release.sparse import SparseRelease
from dphist.uncertainty.reading import error_model_from_dict

if TYPE_CHECKING:
    from dphist.release.grouped import GroupedRelease

FORMAT = "dphist-release"
VERSION, GROUPED, SPARSE = 1, 2, 3  # of one histogram's document, of many, of one of very many bins
_PARQUET = b"PAR1"
PARQUET_KEY = "dphist"
ENDINGS = (".json", ".parquet", ".csv")
_FOREIGN = "{} is not a dphist release: give a file that Release.save wrote as .json or .parquet."
SEAL = "sha256"  # the field of a file's checksum
EXACT = float(1 << 53)  # below it every whole number is a double and back


def header(release: Release) -> dict[str, Any]:
    """Return the document without its values."""
    about = {
        "domain": release.domain.to_dict(),
        "groups": release.groups.to_dict(),
        "error": release.error.to_dict_beside(release.raw),
    }
    return headed(release, VERSION, about)


def headed(release: Release | GroupedRelease, version: int, about: dict[str, Any]) -> dict[str, Any]:
    """Return what the document of any release says, and what it is about."""
    return {
        "format": FORMAT,
        "version": version,
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
        **about,
        "provenance": release.provenance,
        "versions": release.versions,
        "created": release.created,
        **({} if release.id is None else {"id": release.id}),
        "post": release.post,
    }


def document(release: Release) -> dict[str, Any]:
    """Return the whole document; the presentable values are there for other programs to read."""
    whole = header(release) | {"raw": numbers(release.raw)}
    return whole if release.post == "none" else whole | {"values": numbers(release.presentable)}


def written(document: dict[str, Any]) -> str:
    """Return a document as JSON; mappings that cannot be changed are written like others."""
    return json.dumps(document, allow_nan=False, separators=(",", ":"), default=dict)


def sealed(document: dict[str, Any]) -> str:
    """Return a document as the text of a file, with its checksum."""
    return written(document | {SEAL: seal_of(document)})


def seal_of(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of what a document says, however it is laid out: sorted keys, and 60.0 as 60."""
    text = json.dumps(_laid_out(document), allow_nan=False, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _laid_out(value: Any) -> Any:
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return value if all(type(inner) is str for inner in value) else [_laid_out(inner) for inner in value]
    if isinstance(value, Mapping):
        return {key: _laid_out(inner) for key, inner in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value


def save(release: Release, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Write a release in the format its path's ending names; nothing but itself is replaced unasked."""
    return save_with(_writer(release, Path(path)), path, overwrite=overwrite)


def save_with(
    write: Callable[[Path], object], path: str | os.PathLike[str], *, overwrite: bool = False
) -> Path:
    """Let a function write a release's file; nothing but that release is replaced unasked."""
    target = Path(path)
    empty = target.is_file() and not target.stat().st_size  # which holds nothing to lose
    try:
        put(target, write, replace=overwrite or empty)
    except FileExistsError:
        raise OutputError(
            f"{str(target)!r} exists and is not this release, so it is not replaced: choose another name, or "
            "say overwrite=True."
        ) from None
    return target


def save_fresh(release: Release | GroupedRelease | SparseRelease, path: str | os.PathLike[str]) -> Path:
    """Write a release under a name that no file has, counting up from the one asked for; return the name.

    Any number of processes may do so at once, and none writes over another's release.
    """
    write = _writer_of_any(release, Path(path))
    for target in _free_names(Path(path)):
        with suppress(FileExistsError):
            put(target, write, replace=False)
            break
    return target


def fresh_name(path: Path) -> Path:
    """Return the name under which `save_fresh` would write now."""
    return next(_free_names(path))


def _free_names(wanted: Path) -> Iterator[Path]:
    others = (wanted.with_stem(f"{wanted.stem}-{i}") for i in itertools.count(2))
    return (name for name in itertools.chain([wanted], others) if not name.exists())


def _writer_of_any(
    release: Release | GroupedRelease | SparseRelease, target: Path
) -> Callable[[Path], object]:
    if isinstance(release, Release):
        return _writer(release, target)
    if isinstance(release, SparseRelease):
        from dphist.release import sparse_files

        return sparse_files.writer(release, target)
    from dphist.release.grouped_files import writer

    return writer(release, target)


def _writer(release: Release, target: Path) -> Callable[[Path], object]:
    ending = target.suffix.lower()
    if ending == ".json":
        text = sealed(document(release))
        return lambda file: file.write_text(text, encoding="utf-8")
    if ending == ".parquet":
        return lambda file: write_parquet(columns(release), header(release), file)
    if ending == ".csv":
        return lambda file: _write_csv(release, file)
    raise no_format(target)


def no_format(target: Path) -> OutputError:
    """Return the error of a name whose ending names no format."""
    return OutputError(f"{target.name!r} has no ending that names a format: use {', '.join(ENDINGS)}.")


def load_dense(path: str | os.PathLike[str]) -> Release | GroupedRelease:
    """Read a release that has a number for every bin."""
    return dense(load(path), repr(Path(path).name))


def dense(release: Release | GroupedRelease | SparseRelease, name: str) -> Release | GroupedRelease:
    """Return a release that has a number for every bin; refuse others."""
    if not isinstance(release, SparseRelease):
        return release
    raise ReleaseFileError(
        f"{name} is about {release.domain.n:,} bins, and this needs a number for each: ask it with dphist "
        "query, look at it with dphist plot or report, or publish wider bins."
    )


def load_one(path: str | os.PathLike[str]) -> Release:
    """Read a release of a single histogram."""
    found = load_dense(path)
    if isinstance(found, Release):
        return found
    raise ReleaseFileError(
        f"{Path(path).name!r} holds a histogram for each of {len(found):,} groups, and one is needed here: "
        "save one of them, dphist.load(path)[label].save(...)."
    )


def load(path: str | os.PathLike[str]) -> Release | GroupedRelease | SparseRelease:
    """Read a release that was saved as .json or .parquet; neither the records nor the ledger are needed.

    >>> path = dphist.from_counts([30, 20], epsilon=1).save("colours.json")
    >>> dphist.load(path).method
    'auto'

    Of a large file of many groups, the rows are read when they are asked for. A table that ``export`` wrote
    leads back to its release by the metadata beside it.
    """
    from dphist.release.export import load_beside

    file = Path(path)
    if (exported := load_beside(file)) is not None:
        return exported
    try:
        with file.open("rb") as opened:
            content = opened.read(len(_PARQUET))
            content += b"" if content == _PARQUET else opened.read()
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
    if content == _PARQUET:
        return _read_parquet(file)
    if content.startswith(b"# dphist"):
        raise ReleaseFileError(
            f"{file.name!r} is a table for other programs and lacks what a release needs; "
            "load the .json or .parquet of the same release."
        )
    if file.suffix.lower() == ".xlsx" or content.partition(b"\n")[0].find(b"estimate_for_sums,") > 0:
        raise ReleaseFileError(
            f"{file.name!r} is an exported table without its metadata: put {file.name}-metadata.json beside "
            "it again, or load the release file."
        )
    if file.suffix.lower() != ".json" and content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] != b"{":
        raise ReleaseFileError(_FOREIGN.format(repr(file.name)))
    described = parse(content, file.name)
    from dphist.release.export import note_of, read_note

    note = note_of(described)  # of the metadata of a table
    if note is not None:
        return read_note(note, file)
    release = from_document(described, repr(file.name))
    if isinstance(described, dict) and described.pop(SEAL, None) not in (None, seal_of(described)):
        raise ReleaseFileError(
            f"{file.name!r} was altered after it was saved: its checksum differs. Fetch it again from where "
            "it was published."
        )
    return release


def from_document(described: object, name: str) -> Release | GroupedRelease | SparseRelease:
    """Return the release of one histogram or of many that a document describes."""
    if version_of(described, name) == SPARSE:
        from dphist.release import sparse_files

        return sparse_files.read_document(described, name)
    if version_of(described, name) == GROUPED:
        from dphist.release.grouped_files import read_rows

        return read_rows(described, name)
    return read_document(described, name)


def read_document(described: object, name: str) -> Release:
    """Return the release that a document describes, or raise ReleaseFileError with the reason."""
    if version_of(described, name) == SPARSE:
        raise ReleaseFileError(f"{name} is about very many bins: SparseRelease.from_dict reads it.")
    if version_of(described, name) == GROUPED:
        raise ReleaseFileError(f"{name} is about many groups: save it as .json, and dphist.load opens it.")
    with reading(name):
        return _build(mapping(described))


def version_of(described: object, name: str) -> int:
    """Return the version of a document's format, or raise ReleaseFileError with the reason."""
    if not isinstance(described, Mapping) or described.get("format") != FORMAT:
        raise ReleaseFileError(_FOREIGN.format(name))
    version = described.get("version")
    if type(version) is not int or version < 1:
        raise ReleaseFileError(f"{name} is damaged: its version is {version!r}. Fetch it again.")
    if version > SPARSE:
        raise ReleaseFileError(
            f"{name} was written by a later dphist (format {version}, this one reads up to {SPARSE}): "
            "pip install --upgrade dphist."
        )
    return version


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Turn whatever goes wrong while a document is read into words about the file."""
    try:
        yield
    except KeyError as error:
        raise ReleaseFileError(
            f"{name} is damaged: it lacks {error}. Fetch it again, or upgrade dphist."
        ) from None
    except RecursionError:
        raise ReleaseFileError(f"{name} is damaged: it is nested too deeply. Fetch it again.") from None
    except DphistError as error:
        if isinstance(error, ReleaseFileError) and str(error).startswith(name):
            raise  # which names the file already
        raise ReleaseFileError(f"{name} is damaged: {error} Fetch it again, or upgrade dphist.") from None
    except (TypeError, ValueError, AttributeError, IndexError, OverflowError):  # in Python's words or numpy's
        raise ReleaseFileError(
            f"{name} is damaged: a number, a text or a list stands where another kind of entry should. "
            "Fetch it again, or upgrade dphist."
        ) from None


def _build(described: Mapping[str, Any]) -> Release:
    domain = Domain.from_dict(described["domain"])
    common = said(described)
    presented = _made_together(described, domain.n) if _is_of_many(described) else None
    release = Release(
        domain=domain,
        raw=doubles(described["raw"], domain.n),
        groups=groups_of(described["groups"], domain.n),
        error=error_model_from_dict(_with_values(described), domain.n, columns=columns_of(domain)),
        presented=presented,
        **common,
    )
    if "values" in described and presented is None:
        values = doubles(described["values"], domain.n)
        if not (_alike(values, release.presentable) or _alike(values, _formerly(release))):
            raise DataError("its values do not follow from its raw values.")
    return release


def columns_of(domain: Domain) -> int:
    """Return the columns of a grid; 1 for a line."""
    return domain.shape[1] if len(domain.shape) == 2 else 1


def _with_values(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description of the error model, with the release's values where it names none."""
    return {"values": described["raw"], **described["error"]}


def said(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the document of any release says, checked."""
    return {
        "post": described["post"],
        "epsilon": fraction(described["epsilon"]),
        "charges": tuple(
            Spent(text(c["purpose"]), fraction(c["share"]), fraction(c["epsilon"]))
            for c in described["charges"]
        ),
        "unit": text(described["unit"]),
        "sensitivity": described["sensitivity"],
        "method": text(described["method"]),
        "parameters": mapping(described["parameters"]),
        "provenance": mapping(described["provenance"]),
        "versions": mapping(described["versions"]),
        "created": text(described["created"]),
        "simulated": flag(described["simulated"]),
        "id": identifier(described["id"]) if "id" in described else None,
    }


def groups_of(described: Mapping[str, Any], n: int) -> Groups:
    """Return which of n bins share a value."""
    # Looked at before it is built: a damaged number must not ask for all the memory there is.
    if described["kind"] not in ("singletons", "runs"):
        raise DataError(f"unknown kind of groups {described['kind']!r}; it may come from a later version.")
    if described["kind"] == "singletons" and described["n"] != n:
        raise DataError("its groups are for another number of bins.")
    return Groups.from_dict(dict(described))


def _made_together(described: Mapping[str, Any], n: int) -> Floats | None:
    """Return the values of one of many groups, which follow from those of all groups and not from its own."""
    if "values" not in described:
        return None
    return presentable(doubles(described["values"], n), described["post"])


def presentable(values: Floats, post: object) -> Floats:
    """Return values that were made presentable, if they can have been."""
    if not np.isfinite(values).all() or (values < 0).any():
        raise DataError("its presentable values must be finite and not negative.")
    if post == "integer" and (values != np.trunc(values)).any():
        raise DataError("its presentable values must be whole numbers.")
    values.flags.writeable = False
    return values


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


def parse(content: bytes, name: str) -> object:
    """Return what a file's JSON says, or what is wrong with it."""
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


def doubles(numbers: object, n: int) -> Floats:
    """Return a list of n numbers, or say why it is none."""
    if isinstance(numbers, np.ndarray) and numbers.shape == (n,):  # a column of doubles
        return numbers.astype(np.float64, copy=False)
    if not isinstance(numbers, list) or len(numbers) != n:
        found = len(numbers) if isinstance(numbers, list) else "no list of"
        raise DataError(f"its domain has {n} bins and it holds {found} values.")
    if not set(map(type, numbers)) <= {int, float}:
        raise DataError("a value is not a number.")
    return np.array(numbers, dtype=np.float64)


def fraction(value: object) -> Fraction:
    """Return a fraction that was written as text."""
    # Not all that Fraction reads: "1e999999999" would take all the memory there is.
    if not isinstance(value, str) or not re.fullmatch(r"[0-9]{1,4000}(/0*[1-9][0-9]{0,3999})?", value):
        raise DataError(f"{str(value)[:40]!r} is not a fraction such as '1/10'.")
    return Fraction(value)


def text(value: object) -> str:
    """Return a text, or say that it is none."""
    if not isinstance(value, str):
        raise DataError(f"{str(value)[:40]!r} should be text.")
    return value


def identifier(value: object) -> str:
    """Return the name of a release, or say that it is none."""
    if not isinstance(value, str) or not re.fullmatch(r"[0-9a-f]{32}", value):
        raise DataError(f"{str(value)[:40]!r} should be an identifier of 32 hexadecimal digits.")
    return value


def flag(value: object) -> bool:
    """Return true or false, or say that it is neither."""
    if not isinstance(value, bool):
        raise DataError(f"{str(value)[:40]!r} should be true or false.")
    return value


def mapping(value: object) -> Mapping[str, Any]:
    """Return an object of JSON, or say that it is none."""
    if not isinstance(value, Mapping):
        raise DataError(f"{str(value)[:40]!r} should be an object.")
    return value


def numbers(values: Floats) -> list[int | float]:
    """Return values as numbers that read back as the same doubles; whole ones without a fraction."""
    whole = (values == np.trunc(values)) & (np.abs(values) <= EXACT)
    if whole.all():
        return list(values.astype(np.int64).tolist())
    return [int(v) if w else v for v, w in zip(values.tolist(), whole.tolist(), strict=True)]


def put(target: Path, write: Callable[[Path], object], *, replace: bool) -> None:
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
    write_table(release, columns(release), file)


def write_table(release: Release | GroupedRelease, table: Columns, file: Path) -> None:
    """Write the table of a release as CSV, below what it should carry with it."""
    with file.open("w", encoding="utf-8", errors="backslashreplace", newline="") as out:
        for name, words in (
            ("method", release.method),
            ("epsilon", decimal(release.epsilon)),
            ("unit", release.unit),
            ("simulated", "yes: not private" if release.simulated else "no"),
            *([("bounding", release.bounding)] if release.bounding else []),
        ):
            out.write(f"# dphist {name}: {comment(words)}\n")
        rows = csv.writer(out, lineterminator="\n")
        rows.writerow(table)
        rows.writerows(zip(*(cells(column) for column in table.values()), strict=True))


def cells(column: NDArray[Any]) -> list[Any]:
    """Return a column as cells of CSV."""
    if column.dtype.kind != "f":
        texts = column.tolist()
        return [harmless(cell(words), keep="") if isinstance(words, str) else words for words in texts]
    finite = np.isfinite(column)
    filled = numbers(np.where(finite, column, 0.0))
    if finite.all():
        return filled
    both = zip(column.tolist(), filled, strict=True)
    return ["" if math.isnan(v) else v if math.isinf(v) else number for v, number in both]


def write_parquet(columns: Columns, head: dict[str, Any], file: Path) -> None:
    """Write columns as Parquet, with the document of a release without its values in the footer."""
    import duckdb

    table = {
        name: np.array([str(v).encode("utf-8", "backslashreplace").decode() for v in column], dtype=object)
        if column.dtype == object
        else column
        for name, column in columns.items()
    }
    try:
        with duckdb.connect() as db:
            db.register("bins", table)
            db.execute(
                f"COPY (FROM bins) TO ? (FORMAT parquet, COMPRESSION zstd, KV_METADATA {{{PARQUET_KEY}: ?}})",
                [str(file), written(head)],
            )
    except duckdb.Error as error:
        raise OSError(errno.EIO, str(error).splitlines()[0]) from error


def _read_parquet(file: Path) -> Release | GroupedRelease | SparseRelease:
    import duckdb

    described, rows, types = _parquet_header(file)
    if isinstance(described, dict) and version_of(described, repr(file.name)) == GROUPED:
        from dphist.release.grouped_files import open_parquet

        return open_parquet(file, described, rows)
    if isinstance(described, dict) and version_of(described, repr(file.name)) == SPARSE:
        from dphist.release import sparse_files

        return sparse_files.read_parquet(file, described, rows, types)
    if isinstance(described, dict) and described.get("format") == FORMAT:
        # A small file may stand for billions of rows: nothing is read before their number is right.
        n = _bins(described)
        if rows != n:
            raise ReleaseFileError(
                f"{file.name!r} is damaged: its domain has {n} bins and it holds {rows} values. "
                "Fetch it again."
            )
        if ("BYTE_ARRAY",) in types:  # texts, each of which may be as long as it likes
            raise ReleaseFileError(f"{file.name!r} is damaged: its values are not numbers. Fetch it again.")
        wanted = {"raw": "raw"} | ({"value": "values"} if _is_of_many(described) else {})
        query = ", ".join(f"{name}::DOUBLE AS {name}" for name in wanted)
        try:
            with duckdb.connect() as db:
                found = db.execute(f"SELECT {query} FROM read_parquet(?)", [str(file)]).fetchnumpy()
        except duckdb.Error as error:
            raise damaged(file, error) from None
        described |= {key: np.ma.filled(found[name], np.nan) for name, key in wanted.items()}
    return read_document(described, repr(file.name))


def _is_of_many(described: Mapping[str, Any]) -> bool:
    """Return whether a document is about one of many groups, whose values were made together."""
    parameters = described.get("parameters")
    return isinstance(parameters, Mapping) and "group" in parameters and described.get("post") != "none"


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
            types = db.execute(
                "SELECT type FROM parquet_schema(?) WHERE name IN ('start', 'raw', 'value')", [name]
            ).fetchall()
    except duckdb.Error as error:
        raise damaged(file, error) from None
    if len(found) != 1 or len(rows) != 1:
        raise ReleaseFileError(
            f"{file.name!r} is Parquet but not a dphist release: give a file that Release.save wrote."
        )
    return parse(found[0][0], file.name), int(rows[0][0]), types


def damaged(file: Path, error: Exception) -> ReleaseFileError:
    """Return the error of a file that an engine cannot read."""
    reason = str(error).splitlines()[0]
    return ReleaseFileError(f"{file.name!r} is damaged: {reason}. Fetch or save it again.")
