"""The main job: sparse fixes in, dense trips on the road network out, from Python, files and services alike."""
