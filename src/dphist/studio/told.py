"""Answers about made-up data that are told again: the last ones from memory, others from the user's cache."""

from __future__ import annotations

import json
import os
import tempfile
import zlib
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

from dphist.planning.kept import cache_folder, kept_file

_KEPT, _MOST_KEPT = 16, 1 << 25  # answers in memory, and bytes of these
_MOST_ON_DISK = 1 << 26  # bytes; what was not asked for the longest is deleted
_FORMAT = 1  # raise it when a part of an answer or its words change


class Told:
    """What was answered before, in lines of JSON; nothing private, for no answer is made from records."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, bytes] = OrderedDict()
        self._lock = Lock()

    def get(self, question: dict[str, Any]) -> list[bytes] | None:
        """Return the lines of an answer, or None."""
        key = json.dumps(question, sort_keys=True)
        with self._lock:
            told = self._known.get(key)
        if told is None and (file := _file(question)) is not None:
            with suppress(OSError, zlib.error):
                told = zlib.decompress(file.read_bytes())
                self._remember(key, told)
                os.utime(file)
        return None if told is None else told.split(b"\n")

    def keep(self, question: dict[str, Any], lines: list[bytes], *, lasting: bool) -> None:
        """Keep an answer in memory, and on disk if nothing in it was given by the caller alone."""
        told = b"\n".join(lines)
        self._remember(json.dumps(question, sort_keys=True), told)
        if lasting and (file := _file(question)) is not None:
            _write(file, zlib.compress(told, 1))

    def _remember(self, key: str, told: bytes) -> None:
        with self._lock:
            self._known[key] = told
            size = sum(map(len, self._known.values()))
            while len(self._known) > 1 and (len(self._known) > _KEPT or size > _MOST_KEPT):
                size -= len(self._known.popitem(last=False)[1])


def _file(question: dict[str, Any]) -> Path | None:
    file = kept_file({"told": _FORMAT, **question})
    return None if file is None else cache_folder().with_name("foreseen") / file.with_suffix(".z").name


def _write(file: Path, told: bytes) -> None:
    """Write a file as a whole or not at all, and delete the oldest where there are too many."""
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as partial:
            partial.write(told)
        Path(partial.name).replace(file)
        found = sorted((one.stat().st_mtime, one.stat().st_size, one) for one in file.parent.iterdir())
        room = _MOST_ON_DISK
        for _, size, one in reversed(found):
            room -= size
            if room < 0 and one != file:
                one.unlink()
