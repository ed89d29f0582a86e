"""A road network from whatever the user has: an OpenStreetMap extract, an edge table, or nothing at all."""

from __future__ import annotations

from pathlib import Path

from tedtrajrec.errors import InputError
from tedtrajrec.files import existing_file
from tedtrajrec.network.bbox import BBox
from tedtrajrec.network.connectivity import largest_component
from tedtrajrec.network.edge_table import read_edge_table
from tedtrajrec.network.osm import read_osm
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.synthetic import synthetic_city

OSM_SUFFIXES = (".pbf", ".osm", ".osm.gz", ".osm.bz2")
TABLE_SUFFIXES = (".geojson", ".json", ".parquet", ".geoparquet", ".csv", ".tsv")
SYNTHETIC = "synthetic"


def build_network(
    source: str | Path,
    *,
    bbox: BBox | None = None,
    service: bool = False,
    country: str | None = None,
    u_turns: bool | None = None,
    largest_component_only: bool = False,
) -> RoadNetwork:
    """Build a road network from a file, chosen by its suffix.

    Parameters
    ----------
    source
        An OpenStreetMap extract (.osm.pbf, .osm, .osm.gz, .osm.bz2), an edge table (.geojson, .parquet, .csv, .tsv; all
        but Parquet also as .gz), or the word ``synthetic`` for a made-up city.
    bbox
        West, south, east, north in degrees; what lies outside is left out.
    service
        Whether service roads of an OSM extract belong to the network.
    country
        ISO 3166 code for the default speed limits of an OSM extract.
    u_turns
        Whether the U-turns of an edge table are kept; by default they are. An OSM network has them at dead ends only.
    largest_component_only
        Whether to keep only the largest part in which every segment can be reached from every other.
    """
    name = str(source).lower()
    if name == SYNTHETIC:
        if bbox is not None:
            raise InputError("a synthetic city cannot be cut to a bounding box", remedy="Leave out the bounding box.")
        network = synthetic_city()
    elif name.endswith(OSM_SUFFIXES):
        if u_turns is not None:
            raise InputError(
                "U-turns cannot be chosen for an OpenStreetMap extract, where they are allowed at dead ends only",
                file=source,
                remedy="Leave the option out.",
            )
        network = read_osm(existing_file(source, "a road network"), bbox=bbox, service=service, country=country)
    elif name.removesuffix(".gz").endswith(TABLE_SUFFIXES):
        table = existing_file(source, "a road network")
        network = read_edge_table(table, bbox=bbox, u_turns=u_turns is None or u_turns)
    else:
        known = ", ".join((*OSM_SUFFIXES, *TABLE_SUFFIXES))
        existing_file(source, "a road network")
        raise InputError("this kind of file is not known as a road network", file=source, remedy=f"Known: {known}.")
    return largest_component(network) if largest_component_only else network
