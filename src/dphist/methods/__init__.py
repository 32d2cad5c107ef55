"""Methods: the pipeline that runs the four steps, and the catalogue of published combinations."""
