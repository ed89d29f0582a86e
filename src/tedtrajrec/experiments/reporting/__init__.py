"""What the report of experiments is made of: rows, tests over trips, tables, figures, and the two forms of the text."""
