"""The steps from raw trips to a prepared dataset; :mod:`tedtrajrec.data.prepare` runs them."""
