"""A client without generated message classes, which learns all types from the server.

`foreign.py ENDPOINT TOKEN [CA]` prints JSON: the services, and the results of some calls.
"""

import collections
import json
import sys
from pathlib import Path

import grpc
from google.protobuf import descriptor_pool, json_format, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

_Details = collections.namedtuple(
    "_Details", ("method", "timeout", "metadata", "credentials", "wait_for_ready")
)


class Details(_Details, grpc.ClientCallDetails):
    pass


class Token(grpc.UnaryUnaryClientInterceptor, grpc.StreamStreamClientInterceptor):
    """An interceptor that adds the token to every call."""

    def __init__(self, token):
        self.metadata = [("authorization", f"Bearer {token}")]

    def intercept_unary_unary(self, call, details, request):
        return call(Details(details.method, details.timeout, self.metadata, None, True), request)

    intercept_stream_stream = intercept_unary_unary


class Foreigner:
    def __init__(self, endpoint, token, authority=None):
        self.plain = (
            grpc.secure_channel(endpoint, grpc.ssl_channel_credentials(Path(authority).read_bytes()))
            if authority
            else grpc.insecure_channel(endpoint)
        )
        self.channel = grpc.intercept_channel(self.plain, Token(token))
        self.known = ProtoReflectionDescriptorDatabase(self.channel)
        self.pool = descriptor_pool.DescriptorPool(self.known)

    def call(self, service, method, fields):
        """Call a method with a JSON request, and return the response as JSON."""
        described = self.pool.FindServiceByName(service).methods_by_name[method]
        request = json_format.ParseDict(fields, message_factory.GetMessageClass(described.input_type)())
        ask = self.channel.unary_unary(
            f"/{service}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=message_factory.GetMessageClass(described.output_type).FromString,
        )
        return json_format.MessageToDict(ask(request, timeout=10), descriptor_pool=self.pool)


def main(endpoint, token, *authority):
    foreigner = Foreigner(endpoint, token, *authority)
    tasks = "flyteidl.service.AsyncAgentService"
    created = foreigner.call(
        tasks, "CreateTask", {"template": {"type": "pytorch"}, "outputPrefix": "s3://b/x"}
    )
    results = {
        "services": sorted(foreigner.known.get_services()),
        "agents": foreigner.call("flyteidl.service.AgentMetadataService", "ListAgents", {})["agents"],
        "health": foreigner.call("grpc.health.v1.Health", "Check", {}),
        "task": foreigner.call(tasks, "GetTask", {"resourceMeta": created["resourceMeta"]})["resource"],
        "nodes": foreigner.call("kfpytorch_idl.v1.NodeService", "ListNodes", {}),
        "loaded": [
            name for name in sys.modules if name.startswith(("flyteidl", "kfpytorch", "backend_plugin"))
        ],
    }
    print(json.dumps(results))


main(*sys.argv[1:])
