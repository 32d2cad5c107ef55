"""The pictures and the page of a comparison: one file, no network, readable on a phone."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from dphist.charts.picture import Picture
from dphist.lab import figures
from dphist.lab.compare import METRICS, Comparison, Line, Ranking
from dphist.lab.metrics import geometric_mean

MANY = 8  # rankings that still fit one picture
REGRET = "times the best method's error"
# The policy keeps the page off the network.
FRAME = """<!DOCTYPE html><html lang="en"><head><meta charset="UTF-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline';
 img-src data:">
<style>
body {{ font: 16px/1.5 Helvetica, Arial, sans-serif; color: #262626; max-width: 76rem; margin: 0 auto;
  padding: 1rem }}
h1 {{ font-size: 1.5rem }} h2 {{ font-size: 1.2rem; margin-top: 2.5rem; overflow-wrap: anywhere }}
dl {{ display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem }}
dt {{ color: #666 }} dd {{ margin: 0; overflow-wrap: anywhere }}
.wide {{ overflow-x: auto }} .pair {{ display: flex; flex-wrap: wrap; gap: 1rem 2rem; align-items: start }}
.pair > * {{ min-width: 0; max-width: 100% }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums }}
th, td {{ padding: .2rem .6rem; text-align: right; white-space: nowrap; border-bottom: 1px solid #e6e6e6 }}
th:first-child, td:first-child, th:last-child, td:last-child {{ text-align: left }}
tr.best td {{ background: #eaf4fb }} img {{ max-width: 100%; height: auto }}
</style></head><body>{body}</body></html>"""


def errors(made: Comparison) -> Picture:
    """Return the ranked errors with their intervals; of many rankings, the regret at each epsilon."""
    question = made.question
    if len(made.rankings) <= MANY:
        subtitle = f"{_how(made)}, 95 % bootstrap intervals of the mean"
        return _dots(made.rankings, question.metric, subtitle, title=f"Ranked: {METRICS[question.metric]}")
    return figures.dots(
        _regrets(made),
        x="error",
        y="method",
        column="panel",
        title="How much worse than the best",
        subtitle=f"{METRICS[question.metric]}, {_how(made)}",
        x_title=REGRET,
    )


def times(made: Comparison) -> Picture:
    """Return the skyline of time and error; of many rankings, time against regret at each epsilon."""
    question, few = made.question, len(made.rankings) <= MANY
    what = METRICS[question.metric]
    rows = [
        {"panel": ranking.short, "method": line.method, "seconds": line.seconds, "error": line.mean}
        for ranking in made.rankings
        for line in ranking.lines
    ]
    return figures.skyline(
        rows if few else _regrets(made),
        error="error",
        column="panel",
        title=f"Time and error: {what}",
        subtitle=_how(made),
        error_title=what if few else REGRET,
    )


def _how(made: Comparison) -> str:
    q, datasets = made.question, {ranking.dataset for ranking in made.rankings}
    many = f", geometric mean over {len(datasets)} datasets" if len(made.rankings) > MANY else ""
    return f"workload {q.workload}, {q.trials} trials{many}"


def _regrets(made: Comparison) -> list[dict[str, Any]]:
    """Return each method's regret and time at each epsilon: geometric means over the datasets."""
    found: dict[tuple[float, str], list[Line]] = {}
    for ranking in made.rankings:
        for line in ranking.lines:
            found.setdefault((ranking.epsilon, line.method), []).append(line)
    return [
        {
            "panel": f"epsilon {epsilon:g}",
            "method": method,
            "error": geometric_mean([line.regret for line in lines]),
            "seconds": geometric_mean([line.seconds for line in lines]),
        }
        for (epsilon, method), lines in found.items()
    ]


def page(made: Comparison, *, command: str, date: str) -> str:
    """Return the page: what was run, the tables, and the pictures in it."""
    q, title = made.question, "Comparison of methods"
    ok = [row for row in made.rows if row["status"] == "ok"]
    versions = sorted({f"dphist {r['dphist']}, numpy {r['numpy']}, Python {r['python']}" for r in made.rows})
    facts = {
        "command": command,
        "date": date,
        "versions": "; ".join(versions),
        "data": "; ".join(dict.fromkeys(subject.source.name for subject in q.subjects)),
        "workload": q.workload,
        "error": METRICS[q.metric],
        "trials": f"{q.trials} of each method on each dataset",
        "seeds": f"one for each trial, {len({r['seed'] for r in ok}):,} in all, in rows.parquet: the same "
        "command repeats them",
    }
    listed = "".join(f"<dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd>" for k, v in facts.items())
    note = (
        "Public or made-up data and simulated noise: nothing was spent. Intervals are 95 % bootstrap "
        "intervals of the mean. Shaded: competitive, which is not significantly worse than the "
        "best (paired t-test over the trials, 5 % shared among the methods)."
    )
    body = [f"<h1>{title}</h1><p>{note}</p><dl>{listed}</dl>"]
    if len(made.rankings) > 1:
        body.append(f"<h2>Over all {len(made.rankings)} rankings</h2>{_standings(made)}")
    if made.choices:
        said = "".join(f"<p>{html.escape(words)}</p>" for words in choices_in_words(made))
        body.append(f"<h2>Chosen on one half, judged on the other</h2>{said}")
    for ranking in made.rankings:
        body.append(f"<h2>{html.escape(ranking.title)}</h2>")
        if ranking.lines:
            drawn = _image(_dots([ranking], q.metric, "", title="Error with 95 % intervals"))
            body.append(f'<div class="pair">{_ranked(ranking)}{drawn}</div>')
        body += [f"<p>{html.escape(f'{m} failed: {why}')}</p>" for m, why in ranking.failed.items()]
    if ok:
        body.append(f"<h2>Time and error</h2>{_image(times(made))}")
    return FRAME.format(title=title, body="".join(body))


def figure(x: float) -> str:
    """Return a measured number for reading."""
    return f"{x:,.0f}" if 1000 <= abs(x) < 1e7 else f"{x:.3g}"


def ratio(x: float) -> str:
    """Return a regret for reading."""
    return f"{x:.2f}" if x < 100 else figure(x)


def duration(seconds: float) -> str:
    """Return a time for reading."""
    return f"{figure(seconds)} s" if seconds >= 1 else f"{figure(1000 * seconds)} ms"


def mark(line: Line) -> str:
    """Return in words whether a method is among the best of its ranking."""
    return "best" if line.regret == 1 else "competitive" if line.competitive else ""


def choices_in_words(made: Comparison) -> list[str]:
    """Return in words what was chosen on one half of the datasets, and how it did on the other."""
    return [
        f"Chosen on {'; '.join(c.chosen_on)}: {c.method}, {ratio(c.regret_where_chosen)} times the best "
        f"there. On the other half, {'; '.join(c.judged_on)}: {ratio(c.regret)} times the best, at worst "
        f"{ratio(c.worst)}; the best single method there is {c.best}, with {ratio(c.best_regret)}."
        for c in made.choices
    ]


def _dots(rankings: Sequence[Ranking], metric: str, subtitle: str, *, title: str) -> Picture:
    rows = [{"panel": ranking.short} | asdict(line) for ranking in rankings for line in ranking.lines]
    return figures.dots(
        rows,
        x="mean",
        y="method",
        low="low",
        high="high",
        column="panel",
        title=title,
        subtitle=subtitle,
        x_title=METRICS[metric],
        log_x=all(row["mean"] > 0 for row in rows),
    )


def _ranked(ranking: Ranking) -> str:
    header = ("method", "error", "95 % interval", "95th percentile", "times the best", "time", "")
    rows = [
        (
            line.method,
            figure(line.mean),
            f"{figure(line.low)} to {figure(line.high)}",
            figure(line.p95),
            ratio(line.regret),
            duration(line.seconds),
            mark(line),
        )
        for line in ranking.lines
    ]
    return _table(header, rows, best=[line.competitive for line in ranking.lines])


def _standings(made: Comparison) -> str:
    header = ("method", "times the best (geometric mean)", "at worst", "competitive")
    rows = [
        (s.method, ratio(s.regret), ratio(s.worst), f"{s.among_best} of {s.rankings}") for s in made.overall
    ]
    return _table(header, rows, best=[False] * len(rows))


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], *, best: Sequence[bool]) -> str:
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
    lines = ""
    for row, shaded in zip(rows, best, strict=True):
        cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in row)
        lines += f'<tr class="best">{cells}</tr>' if shaded else f"<tr>{cells}</tr>"
    return f'<div class="wide"><table><tr>{head}</tr>{lines}</table></div>'


def _image(picture: Picture) -> str:
    """Return a picture inside the page; as an image it can run nothing, whatever its texts say."""
    coded = base64.b64encode(picture.to_svg().encode()).decode()
    about = html.escape(picture.spec["description"], quote=True)
    return f'<img alt="{about}" src="data:image/svg+xml;base64,{coded}">'
