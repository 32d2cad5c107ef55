"""The studio: a page on this machine on which a release is designed, priced, published and explored.

``guard`` decides who may ask and how much; ``places`` which files exist for the page; ``answers`` puts what
the library says into JSON. ``releases`` answers about releases, and is all that ``view`` needs. ``edit`` adds
``plans``, ``foreseeing``, ``publishing``, ``looking`` and the ledger. Nothing is computed here that the
library lacks.
"""
