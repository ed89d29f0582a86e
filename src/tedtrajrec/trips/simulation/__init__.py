"""Parts of the trip simulator; :mod:`tedtrajrec.trips.simulate` is its front door, ``docs/simulator.md`` its model."""
