"""Serves a shard whose items an outside engine stores and searches."""

import grpc

from index_svc.move_servicer import MoveServicer
from index_svc.servicer import IndexServicer
from tandem.chassis.serve.service import Service
from tandem.remote.index_engine import EngineShard
from tandem.v1 import index_admin_service_pb2 as admin_pb
from tandem.v1 import index_service_pb2 as pb
from tandem.v1.index_admin_service_pb2_grpc import add_IndexAdminServiceServicer_to_server
from tandem.v1.index_service_pb2_grpc import add_IndexServiceServicer_to_server


def engine_service(shard: EngineShard, shard_map_version: int) -> Service:
    """Returns the service, which has no state: any number of it serves one shard.

    Of IndexAdminService it has what a move needs, because the engine builds and tunes its indexes
    itself.
    """
    servicer = IndexServicer(shard, shard_map_version=shard_map_version)

    def register(server: grpc.aio.Server) -> None:
        add_IndexServiceServicer_to_server(servicer, server)
        add_IndexAdminServiceServicer_to_server(MoveServicer(shard, shard_map_version), server)

    return Service(
        name="index",
        register=register,
        service_names=[
            pb.DESCRIPTOR.services_by_name["IndexService"].full_name,
            admin_pb.DESCRIPTOR.services_by_name["IndexAdminService"].full_name,
        ],
        warm=shard.open,
        ready=shard.check,
        close=shard.close,
        stage=shard,
    )
