import subprocess
import sys

import pytest

import tedtrajrec

PUBLIC = [
    "Dataset", "Recoverer", "RoadNetwork", "TedtrajrecError", "Trips", "build_network", "match", "prepare_dataset",
    "read_trips", "simulate_trips", "train_method", "write_trips",
]  # fmt: skip


def test_the_public_names_are_pinned_and_load():
    assert tedtrajrec.__all__ == PUBLIC
    assert all(getattr(tedtrajrec, name) is not None for name in PUBLIC)
    assert set(PUBLIC) <= set(dir(tedtrajrec))
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = tedtrajrec.nothing_like_it


def test_importing_the_package_and_the_core_loads_no_geo_library_and_no_torch():
    code = (
        "import sys, tedtrajrec, tedtrajrec.network.candidates, tedtrajrec.network.routing, tedtrajrec.trips.simulate,"
        "tedtrajrec.trips.clean, tedtrajrec.data.sampling;"
        "print([m for m in ('torch','polars','pyarrow','shapely','osmium','matplotlib','pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_recovering_with_the_map_alone_loads_no_library_of_graph_networks():
    code = "import sys, tedtrajrec.recovery.recoverer as _; print({'torch', 'torch_geometric'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{'torch'}"
