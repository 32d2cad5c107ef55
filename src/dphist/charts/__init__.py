"""Pictures of releases, previews and comparisons, as Vega-Lite specifications."""
