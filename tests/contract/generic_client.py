"""A client without generated message classes, which learns all types from the server.

`generic_client.py ENDPOINT TOKEN CA` prints JSON: the services, and the results of some calls.
"""

import json
import sys
from pathlib import Path

import grpc
from google.protobuf import descriptor_pool, json_format, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase


class GenericClient:
    def __init__(self, endpoint, token, authority):
        tls = grpc.ssl_channel_credentials(Path(authority).read_bytes())
        access = grpc.access_token_call_credentials(token)
        self.channel = grpc.secure_channel(endpoint, grpc.composite_channel_credentials(tls, access))
        self.known = ProtoReflectionDescriptorDatabase(self.channel)
        self.pool = descriptor_pool.DescriptorPool(self.known)

    def call(self, service, method, fields):
        """Call a method with a JSON request, and return the response as JSON."""
        described = self.pool.FindServiceByName(service).methods_by_name[method]
        request = json_format.ParseDict(fields, message_factory.GetMessageClass(described.input_type)())
        send = self.channel.unary_unary(
            f"/{service}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=message_factory.GetMessageClass(described.output_type).FromString,
        )
        return json_format.MessageToDict(send(request, timeout=10), descriptor_pool=self.pool)


def main(*arguments):
    client = GenericClient(*arguments)
    tasks = "flyteidl.service.AsyncAgentService"
    request = {"template": {"type": "pytorch"}, "outputPrefix": "s3://b/x"}
    reference = client.call(tasks, "CreateTask", request)["resourceMeta"]
    results = {
        "services": sorted(client.known.get_services()),
        "agents": client.call("flyteidl.service.AgentMetadataService", "ListAgents", {})["agents"],
        "health": client.call("grpc.health.v1.Health", "Check", {}),
        "task": client.call(tasks, "GetTask", {"resourceMeta": reference})["resource"],
        "nodes": client.call("kfpytorch_idl.v1.NodeService", "ListNodes", {}),
        "loaded": [
            name for name in sys.modules if name.startswith(("flyteidl", "kfpytorch", "backend_plugin"))
        ],
    }
    print(json.dumps(results))


main(*sys.argv[1:])
