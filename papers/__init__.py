"""The papers' experiments, run again with private versions of their methods: tables, figures and a page.

Each paper has a TOML file, with its published figures, our settings and its claims, and a module for what is
special to it.
"""

PAPERS = ("ahp", "dawa", "engineering", "sortaki")
