"""A pair of NameNodes: the standby's refusal leads to the active one, and back."""

from __future__ import annotations

import pytest

from tests.cluster.hadoop.fixture import GetHadoop
from tony_core.hadoop.errors import Standby
from tony_core.hadoop.rpc.connection import Endpoints
from tony_core.hadoop.rpc.protobuf import Message
from tony_core.hadoop.rpc.service import Method, Service
from tony_core.hadoop.rpc.wire import User
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.site.endpoints import name_service

pytestmark = pytest.mark.cluster

_PROTOCOL = "org.apache.hadoop.hdfs.protocol.ClientProtocol"


class GetServerDefaultsRequest(Message):
    pass


class GetServerDefaultsResponse(Message):
    pass


ANY_READ = Method("getServerDefaults", GetServerDefaultsRequest, GetServerDefaultsResponse)


def test_calls_go_to_the_active_one(hadoop: GetHadoop) -> None:
    cluster = hadoop("nn_ha")
    found = name_service(SiteConfiguration.load({}, conf_dir=str(cluster.conf_dir)))
    assert found.highly_available
    assert len(found.rpc.addresses) == len(found.web.urls) == 2
    with Service(found.rpc, _PROTOCOL, User(cluster.user)) as service:
        service.call(ANY_READ, GetServerDefaultsRequest())
        before = service.address
        cluster.fail_over_hdfs()
        service.call(ANY_READ, GetServerDefaultsRequest())
        after = service.address
    assert {before, after} == set(found.rpc.addresses)
    only_standby = Endpoints(found.rpc.service, (before,))
    words = "not supported in state standby"
    with (
        Service(only_standby, _PROTOCOL, User(cluster.user)) as service,
        pytest.raises(Standby, match=words),
    ):
        service.call(ANY_READ, GetServerDefaultsRequest(), within_s=0.1)
    cluster.fail_over_hdfs()
