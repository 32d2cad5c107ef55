"""A small writer of workbooks (.xlsx, Office Open XML): texts and numbers on named sheets, no formulas.

Texts are inline strings, which no spreadsheet takes for a formula, whatever they begin with. The same content
gives the same file, to the last byte.
"""

from __future__ import annotations

import math
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from dphist._common.text import harmless

MOST_ROWS, MOST_LETTERS = 1 << 20, 32_767  # of a sheet, and of a cell
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the time of each part
_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_RELATED = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_PLAIN, _BOLD, _WHOLE, _WRAPPED = range(4)
# Numbers in the common format: a spreadsheet shows them as they are, and nothing is rounded away.
_STYLES = (
    f'<styleSheet xmlns="{_MAIN}"><fonts count="2"><font><sz val="11"/><name val="Calibri"/></font>'
    '<font><b/><sz val="11"/><name val="Calibri"/></font></fonts>'
    '<fills count="2"><fill><patternFill patternType="none"/></fill><fill>'
    '<patternFill patternType="gray125"/></fill></fills><borders count="1"><border/></borders>'
    '<cellStyleXfs count="1"><xf/></cellStyleXfs><cellXfs count="4"><xf/>'
    '<xf fontId="1" applyFont="1"/><xf numFmtId="3" applyNumberFormat="1"/>'
    '<xf applyAlignment="1"><alignment vertical="top" wrapText="1"/></xf></cellXfs>'
    '<cellStyles count="1"><cellStyle name="Normal" xfId="0" builtinId="0"/></cellStyles></styleSheet>'
)
# Characters that XML cannot hold, and the beginning of what spreadsheets read as an escaped character.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ESCAPED = re.compile("_(?=x[0-9A-Fa-f]{4}_)")

Cell = str | int | float | None


@dataclass(frozen=True)
class Sheet:
    """One sheet: a first row in bold, which stays in sight, and further rows.

    Args:
        widths: of the columns, in letters.
        wrapped: whether long texts take several lines.
    """

    name: str
    header: Sequence[str]
    rows: Iterable[Sequence[Cell]]
    widths: Sequence[int]
    wrapped: bool = False


def write(file: Path, sheets: Sequence[Sheet]) -> None:
    """Write a workbook."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as book:
        for name, text in _parts(sheets).items():
            book.writestr(_part(name), _HEAD + text)
        for i, sheet in enumerate(sheets, 1):
            with book.open(_part(f"xl/worksheets/sheet{i}.xml"), "w") as out:
                for piece in _sheet(sheet):
                    out.write(piece.encode())


def _part(name: str) -> zipfile.ZipInfo:
    part = zipfile.ZipInfo(name, _LONG_AGO)
    part.compress_type = zipfile.ZIP_DEFLATED
    return part


def _parts(sheets: Sequence[Sheet]) -> dict[str, str]:
    """Return the parts of a workbook besides its sheets."""
    numbers = range(1, len(sheets) + 1)
    overrides = "".join(
        f'<Override PartName="/xl/worksheets/sheet{i}.xml" ContentType="{_TYPE}.worksheet+xml"/>'
        for i in numbers
    )
    named = "".join(
        f'<sheet name={quoteattr(sheet.name)} sheetId="{i}" r:id="rId{i}"/>'
        for i, sheet in zip(numbers, sheets, strict=True)
    )
    related = [
        *((f"rId{i}", "worksheet", f"worksheets/sheet{i}.xml") for i in numbers),
        (f"rId{len(sheets) + 1}", "styles", "styles.xml"),
    ]
    return {
        "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types">'
        '<Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{_TYPE}.sheet.main+xml"/>'
        f'<Override PartName="/xl/styles.xml" ContentType="{_TYPE}.styles+xml"/>{overrides}</Types>',
        "_rels/.rels": _relations([("rId1", "officeDocument", "xl/workbook.xml")]),
        "xl/workbook.xml": f'<workbook xmlns="{_MAIN}" xmlns:r="{_RELATED}"><sheets>{named}</sheets>'
        "</workbook>",
        "xl/_rels/workbook.xml.rels": _relations(related),
        "xl/styles.xml": _STYLES,
    }


def _relations(related: Iterable[tuple[str, str, str]]) -> str:
    made = "".join(
        f'<Relationship Id="{name}" Type="{_RELATED}/{kind}" Target="{target}"/>'
        for name, kind, target in related
    )
    return f'<Relationships xmlns="{_PACKAGE}/relationships">{made}</Relationships>'


def _sheet(sheet: Sheet) -> Iterator[str]:
    """Yield the pieces of a sheet's part, one for each row."""
    wide = "".join(
        f'<col min="{i}" max="{i}" width="{width}" customWidth="1"/>'
        for i, width in enumerate(sheet.widths, 1)
    )
    top = '<pane ySplit="1" topLeftCell="A2" activePane="bottomLeft" state="frozen"/>'
    yield (
        f'{_HEAD}<worksheet xmlns="{_MAIN}"><sheetViews><sheetView workbookViewId="0">{top}</sheetView>'
        f"</sheetViews><cols>{wide}</cols><sheetData>"
    )
    yield _row(sheet.header, _BOLD)
    for row in sheet.rows:
        yield _row(row, _WRAPPED if sheet.wrapped else _PLAIN)
    yield "</sheetData></worksheet>"


def _row(cells: Sequence[Cell], style: int) -> str:
    return f"<row>{''.join(_cell(cell, style) for cell in cells)}</row>"


def _cell(value: Cell, style: int) -> str:
    if isinstance(value, str):
        return f'<c t="inlineStr" s="{style}"><is><t xml:space="preserve">{_text(value)}</t></is></c>'
    if value is None or math.isnan(value):
        return "<c/>"
    if math.isinf(value):
        return _cell("unbounded", style)
    whole = _WHOLE if value == int(value) and style == _PLAIN else style
    return f'<c s="{whole}"><v>{value!r}</v></c>'


def _text(words: str) -> str:
    safe = _NOT_XML.sub("\ufffd", harmless(words))[:MOST_LETTERS]
    return escape(_ESCAPED.sub("_x005F_", safe))
