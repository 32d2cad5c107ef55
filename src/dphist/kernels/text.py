"""Loops over the bytes of text files: lines with stray quotes, and the elements of JSON arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dphist.kernels import kernel

_NEWLINE, _RETURN, _SPACE, _QUOTE, _COMMA, _BACKSLASH = 10, 13, 32, 34, 44, 92
_BRACE, _BRACE_END, _BRACKET, _BRACKET_END = 123, 125, 91, 93


@kernel
def stray_quotes(text: NDArray[np.uint8], start: int, delimiter: int) -> tuple[int, int]:
    """Return where the next line begins and ends whose quotes are not those of a correct writer.

    A field of delimited text either begins with a quote and ends with one, and has all others doubled,
    or it has none. ``text`` consists of whole lines, each with its newline; ``start`` is where one begins.
    The end is behind the newline; (-1, -1) when all lines are well-formed. One pass.
    """
    if text.size and text[text.size - 1] != _NEWLINE:
        raise ValueError("the last line has no newline")
    begin = at = start
    while at < text.size:
        stray = False
        c = _SPACE
        while c != _NEWLINE:  # a field, up to the delimiter or the newline that ends it
            c = text[at]
            if c == _QUOTE:
                doubled = True
                while doubled:
                    at += 1
                    while text[at] != _QUOTE and text[at] != _NEWLINE:
                        at += 1
                    if text[at] == _NEWLINE:
                        return begin, at + 1
                    at += 1
                    doubled = text[at] == _QUOTE
                c = text[at]
                stray |= c != delimiter and c != _NEWLINE
            while c != delimiter and c != _NEWLINE:
                stray |= c == _QUOTE
                at += 1
                c = text[at]
            at += 1
        if stray:
            return begin, at
        begin = at
    return -1, -1


@kernel
def elements_to_lines(text: NDArray[np.uint8], depth: int, state: int) -> tuple[int, int]:
    """Put every element of a top-level JSON array on a line of its own, in place; return where it stopped.

    Values outside an array stay on the lines they are on. ``depth`` is how many brackets are open and
    ``state`` the sum of 1 inside a string, 2 behind a backslash there and 4 inside a top-level array; both
    begin at 0 and go from one piece of text to the next. One pass.
    """
    string, escaped, listed = state & 1 > 0, state & 2 > 0, state & 4 > 0
    for at in range(text.size):
        c = text[at]
        if string:
            string = escaped or c != _QUOTE
            escaped = not escaped and c == _BACKSLASH
            if c == _NEWLINE:
                text[at] = _SPACE
        elif c == _QUOTE:
            string = True
        elif c in (_BRACE, _BRACKET):
            if depth == 0 and c == _BRACKET:
                listed = True
                text[at] = _NEWLINE
            depth += 1
        elif c in (_BRACE_END, _BRACKET_END):
            depth = max(depth - 1, 0)
            if depth == 0 and listed:
                listed = False
                text[at] = _NEWLINE
        elif c == _COMMA:
            if listed and depth == 1:
                text[at] = _NEWLINE
        elif c in (_NEWLINE, _RETURN) and depth > 0:
            text[at] = _SPACE
    return depth, string * 1 + escaped * 2 + listed * 4
