"""A `Report` into terminal text, HTML, markdown and JSON."""
