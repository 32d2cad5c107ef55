"""A draft for the registry of deployments of differential privacy, as YAML.

The fields are those of the registry's template (deployments-registry-data, OpenDP). What follows from the
releases is filled in; what only the publisher knows begins with FILL IN.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from dphist._common.text import harmless
from dphist.release import words
from dphist.release.show import decimal
from dphist.reports.published import published

MARK = "FILL IN"
_DIFFERENT = f"{MARK}: the releases protect different units or datasets; see the details"
_MODEL = (
    "One curator holds the records, and a program adds noise before anything is published. Whoever can read "
    "the records or the program's memory is trusted; readers of the release need not be."
)


def draft(title: str, releases: Sequence[words.AnyRelease]) -> str:
    """Return the draft of a record about some releases."""
    head = "\n".join(
        (
            "# A draft for the registry of deployments of differential privacy, written by dphist.",
            f"# Texts that begin with {MARK} are for the publisher; all others follow from the releases.",
        )
    )
    return f"{head}\n{_yaml(_record(title, releases))}"


def _record(title: str, releases: Sequence[words.AnyRelease]) -> dict[str, Any]:
    told = [words.methods(release, published(release)) for release in releases]
    parts = list(zip(*(text[-6:] for text in told), strict=True))
    data, guarantee, mechanism, presentable, intervals, software = (_each(part) for part in parts)
    units = dict.fromkeys(release.unit for release in releases)
    epsilon = _total(releases)
    simulated = "SIMULATED: not private. " if any(release.simulated for release in releases) else ""
    return {
        "url_slug": re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "release",
        "deployment": {
            "basic": {
                "name": title,
                "data_curators": [
                    {
                        "data_curator_name": f"{MARK}: who publishes this",
                        "data_curator_type": f"{MARK}: such as Government",
                    }
                ],
                "description": f"{simulated}{title}: histograms of counted records. {data}",
                "intended_use": f"{MARK}: what it is for",
                "data_product_type": "Summary statistics",
                "data_product_region": f"{MARK}: the region it is about",
                "data_product_sector": f"{MARK}: such as Health",
                "publication_date": max(release.created[:10] for release in releases),
            },
            "dp_variant": {
                "variant_name": "Pure DP",
                "data_domain": data,
                "unprotected_quantities": f"{MARK}: whatever was read off the records without protection, "
                "such as a range or a list of labels. The software reads bins, groups and bounds from their "
                "declaration alone.",
            },
            "privacy_loss": {
                "privacy_unit": "; ".join(units),
                "privacy_unit_details": guarantee,
                "number_of_privacy_units": 1,
                "privacy_parameters": {"epsilon": float(epsilon) if _add_up(releases) else _DIFFERENT},
                "privacy_parameters_details": _losses(releases, epsilon),
            },
            "deployment_model": {
                "model_name": "Central",
                "model_name_details": _MODEL,
                "trust_assumptions": f"{MARK}: who can see the records, under which rules, and until when",
                "actors": f"{MARK}: who collected the records, who ran the program, who reads the release",
                "release_type": f"{MARK}: One release or Many releases",
                "release_type_details": f"{MARK}: whether it will be repeated on the same people",
                "data_source_type": f"{MARK}: Static or Dynamic",
                "data_source_type_details": f"{MARK}: how and when the records were collected",
                "access_type": "Non-interactive",
                "access_type_details": "Readers get the published numbers, and ask those.",
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": f"{data} {MARK}: how epsilon, bins and the bound "
                "on contributions were chosen",
                "mechanisms": mechanism,
                "composition": "Exact sums of epsilon (sequential composition); disjoint groups of records "
                "share one charge (parallel composition).",
                "post_processing": presentable,
                "justification": f"{MARK}: why this epsilon and this method",
                "utility": intervals,
                "additional_information": software,
            },
            "administrative": {
                "evidence_sources": {
                    "release": {
                        "evidence_source_type": f"{MARK}: such as the report",
                        "article": {
                            "title": title,
                            "year": releases[0].created[:4],
                            "url": f"{MARK}: where it is published",
                        },
                    }
                },
                "status": "Draft",
                "registry_authors": [f"{MARK}: your name"],
                "tier": 3,
            },
        },
    }


def _each(texts: Sequence[str]) -> str:
    return " ".join(dict.fromkeys(texts))


def _total(releases: Sequence[words.AnyRelease]) -> Fraction:
    """Return what all releases cost together; one that is shown twice was paid for once."""
    paid = {
        (words.draws_of(release) if release.id else i): release.epsilon for i, release in enumerate(releases)
    }
    return sum(paid.values(), Fraction(0))


def _add_up(releases: Sequence[words.AnyRelease]) -> bool:
    """Return whether all charges are for the same people, so that their sum bounds what each may lose."""
    return len({(words.person(r), r.provenance.get("dataset")) for r in releases}) == 1


def _losses(releases: Sequence[words.AnyRelease], epsilon: Fraction) -> str:
    each = "; ".join(f"{words.usual_title(r)}: epsilon = {decimal(r.epsilon)} for {r.unit}" for r in releases)
    if len(releases) == 1:
        return f"{each}."
    if not _add_up(releases):
        return f"{each}. Units or datasets differ, so that a sum would bound the loss of nobody."
    return f"{each}. Together {decimal(epsilon)}, by sequential composition."


def _yaml(value: Mapping[str, Any], indent: int = 0) -> str:
    """Return nested mappings, lists, texts and numbers as YAML; every text is in quotes."""
    lines = []
    for key, inner in value.items():
        start = f"{' ' * indent}{key}:"
        if isinstance(inner, Mapping):
            lines.append(f"{start}\n{_yaml(inner, indent + 2).rstrip()}")
        elif isinstance(inner, list):
            lines.append(start)
            lines += [_item(entry, indent + 2) for entry in inner]
        else:
            lines.append(f"{start} {_scalar(inner)}")
    return "\n".join(lines) + "\n"


def _item(entry: Any, indent: int) -> str:
    if isinstance(entry, Mapping):
        text = _yaml(entry, indent + 2).rstrip()
        return f"{' ' * indent}- {text.lstrip()}"
    return f"{' ' * indent}- {_scalar(entry)}"


def _scalar(value: object) -> str:
    if isinstance(value, str):
        text = harmless(value, keep="").encode("utf-8", "backslashreplace").decode()
        return json.dumps(text, ensure_ascii=False)
    return repr(value)
