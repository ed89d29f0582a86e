"""The HTTP service: recovery and matching over a versioned interface, with the map page at its root."""
