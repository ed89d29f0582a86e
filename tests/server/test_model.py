"""A service with the model that comes with tedtrajrec."""

from __future__ import annotations

import numpy as np
import pytest

from tedtrajrec.methods.shipped import describe_models
from tedtrajrec.server import schemas
from tedtrajrec.server.loading import _made_up_trip, load_served
from tedtrajrec.server.settings import ServerSettings
from tests.server.running import as_request, running


@pytest.mark.skipif(not describe_models(), reason="this copy of tedtrajrec has no model")
def test_a_model_is_served_with_the_untrained_method_beside_it() -> None:
    settings = ServerSettings(model="chengdu", device="cpu")
    served = load_served(settings)
    trip = _made_up_trip(served.network, segments=30)
    sparse = trip.keep_fixes(np.arange(30) % 10 == 0)
    with running(settings, lambda _: served) as http:
        methods = schemas.MethodsAnswer.model_validate_json(http.get("/v1/methods").content).methods
        assert [method.default for method in methods] == [True, False]
        assert methods[0].name.startswith("tedtrajrec")
        assert methods[1].name == "route_hmm"
        for method in methods:
            answer = http.post("/v1/recover", json=as_request(sparse, method=method.name))
            expected = served.methods[method.name].recoverer().recover_trips(sparse)
            (found,) = schemas.RecoverAnswer.model_validate_json(answer.content, strict=True).trips
            assert found.segment == expected.segment.tolist()
            assert found.lon == expected.lon.tolist()
            assert found.ratio == expected.ratio.tolist()
            known = [p is not None for p in found.probability]
            assert all(known) == method.default  # the map alone does not say how sure it is between fixes
