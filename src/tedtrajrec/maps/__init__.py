"""Recovered trips on a map: one self-contained HTML file, and the page that the service shows."""
