"""The parts of the map matcher; :mod:`tedtrajrec.trips.match` is its front."""
