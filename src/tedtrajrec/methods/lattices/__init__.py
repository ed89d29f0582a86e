"""The parts of the lattice; :mod:`tedtrajrec.methods.lattice` is its front."""
