"""The command that reruns the papers: what it writes, and what it says of a mistake."""

import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from dphist.charts.picture import Picture
from dphist.errors import OutputError
from dphist.lab import figures
from papers import PAPERS, palette, runner
from papers.__main__ import main
from papers.palette import with_palette
from papers.runner import Run


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPHIST_BENCH_DATA", raising=False)
    return tmp_path


def ask(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["papers", *map(str, words)])
    return main()


def test_a_paper_says_what_it_wrote(here, monkeypatch, capsys):
    asked = []

    def tiny(run):
        run.out.mkdir(parents=True, exist_ok=True)
        (run.out / "tables.md").write_text("new")
        asked.append(run)

    monkeypatch.setattr(runner, "perform", tiny)
    (here / "results" / "dawa").mkdir(parents=True)
    (here / "results" / "dawa" / "old.md").write_text("old")
    assert ask(monkeypatch, "dawa", "--jobs", "1") == 0
    assert capsys.readouterr().out.split() == [str(Path("results/dawa/tables.md"))]
    monkeypatch.setenv("DPHIST_BENCH_DATA", "elsewhere")
    assert ask(monkeypatch, "dawa", "--quick", "--backend", "dask") == 0
    assert ask(monkeypatch, "dawa", "--data", here, "--out", "there") == 0
    assert asked == [
        Run("dawa", Path("results/dawa"), quick=False, jobs=1),
        Run("dawa", Path("results/dawa-quick"), quick=True, data=Path("elsewhere"), backend="dask"),
        Run("dawa", Path("there"), quick=False, data=here),
    ]


def test_an_interrupted_paper_says_how_to_go_on(here, monkeypatch, capsys):
    def stop(run):
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "perform", stop)
    assert ask(monkeypatch, "dawa") == 130
    assert "kept in results/dawa: the same command goes on" in capsys.readouterr().err


def test_an_unknown_paper_and_a_missing_folder(here, monkeypatch, capsys):
    with pytest.raises(SystemExit, match="2"):
        ask(monkeypatch, "sortak")
    assert "sortaki" in capsys.readouterr().err
    assert ask(monkeypatch, "dawa", "--data", "nowhere") == 2
    assert "nowhere" in capsys.readouterr().err
    assert not (here / "results").exists()


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be made"):
        runner.perform(Run("ahp", tmp_path / "file", quick=True))


@pytest.mark.parametrize("name", PAPERS)
def test_every_paper_has_a_module_and_facts(name):
    facts = runner.load(name)
    assert facts["title"] and facts["about"] and facts["data"]
    assert callable(__import__(f"papers.{name}").__dict__[name].report)


def chunk(name, body):
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


class TestPictures:
    """Those kept with the sources are small."""

    @pytest.fixture
    def picture(self):
        rows = [{"x": x, "y": 1 + x * m % 17, "m": f"method {m}"} for x in range(1, 40) for m in range(1, 8)]
        return figures.lines(rows, x="x", y="y", by="m", title="many", x_title="x", y_title="y")

    def test_a_large_one_is_drawn_smaller(self, picture, monkeypatch, tmp_path):
        full = len(with_palette(picture.to_png(scale=1.0)))
        assert full < len(picture.to_png(scale=1.0))
        monkeypatch.setattr(runner, "LARGEST", full * 3 // 4)
        runner.save(picture, tmp_path / "a.png")
        drawn = (tmp_path / "a.png").read_bytes()
        assert drawn.startswith(b"\x89PNG") and full // 10 < len(drawn) <= full * 3 // 4

    def test_a_palette_keeps_the_colours(self):
        """Every filter that a PNG may have, the palette's own file read by the same rules."""
        colours = np.array([[255, 255, 255], [0, 0, 0], [0, 113, 178]], np.int64)
        pixels = colours[np.random.default_rng(0).integers(0, 3, (5, 9))]
        given = np.concatenate([pixels, np.full((5, 9, 1), 255)], axis=2)
        lines = []
        for y, kind in enumerate((0, 1, 2, 3, 4)):
            left = np.pad(given[y], ((1, 0), (0, 0)))[:-1]
            above = given[y - 1] if y else np.zeros_like(given[y])
            corner = np.pad(above, ((1, 0), (0, 0)))[:-1]
            near = np.abs(left + above - corner - np.stack([left, above, corner])).argmin(axis=0)
            paeth = np.take_along_axis(np.stack([left, above, corner]), near[None], 0)[0]
            guess = (0, left, above, (left + above) // 2, paeth)[kind]
            lines.append(bytes([kind]) + ((given[y] - guess) % 256).astype(np.uint8).tobytes())
        made = chunk(b"IHDR", struct.pack(">IIBBBBB", 9, 5, 8, 6, 0, 0, 0))
        made += chunk(b"IDAT", zlib.compress(b"".join(lines))) + chunk(b"IEND", b"")
        parts = dict(palette.chunks_of(with_palette(b"\x89PNG\r\n\x1a\n" + made)))
        rows = np.frombuffer(zlib.decompress(parts[b"IDAT"]), np.uint8).reshape(5, 10)[:, 1:]
        shown = np.frombuffer(parts[b"PLTE"], np.uint8).reshape(-1, 3)[rows].astype(np.int64)
        assert np.abs(shown - pixels).max() <= 3, "six bits of each colour are kept"
        assert (shown[(pixels == 255).all(axis=2)] == 255).all()

    def test_one_that_stays_too_large_is_refused(self, picture, monkeypatch, tmp_path):
        scales = []
        monkeypatch.setattr(Picture, "to_png", lambda self, *, scale: scales.append(scale) or bytes(400_000))
        monkeypatch.setattr(runner, "with_palette", bytes)
        with pytest.raises(OutputError, match=r"a.png takes 400,000 bytes, and may take 150,000"):
            runner.save(picture, tmp_path / "a.png")
        assert scales[-1] == runner.SMALLEST and len(scales) <= 5 and not (tmp_path / "a.png").exists()


RESULTS = Path(__file__).parents[2] / "results"


@pytest.mark.skipif(not RESULTS.is_dir(), reason="the results are not part of this copy")
def test_results_hold_text_and_small_pictures():
    files = [path for path in RESULTS.rglob("*") if path.suffix in (".md", ".png")]
    assert files and all(path.stat().st_size <= runner.LARGEST for path in files)
    pages = [path.read_text("utf-8") for path in files if path.suffix == ".md"]
    assert not any("likely reason" in page or "dphist bench paper" in page for page in pages)
