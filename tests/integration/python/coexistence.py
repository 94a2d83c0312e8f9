#!/usr/bin/python3
"""libarclient beside another gRPC and another protobuf in one process, in either order of loading.

usage: coexistence.py <grpc-first|arclient-first> <libarclient.so> <arcommd>

Debian's python3-grpcio and python3-protobuf bring libgrpc and libprotobuf of their own. Both sides must work
before and after the other was loaded: a gRPC call over a unix socket, with protobuf messages in it, and
AllReduces of two ranks in this process.
"""
import concurrent.futures
import ctypes
import os
import signal
import sys
import tempfile

from node_daemon import start_daemon

RANKS = 2
COUNT = 1000
FLOAT32, SUM = 2, 0


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


class GrpcSide:
    """A server and a client of Debian's grpcio in this process."""

    def __init__(self, folder):
        import grpc
        from google.protobuf import struct_pb2

        self.struct_pb2 = struct_pb2

        def shout(request, context):
            return struct_pb2.Value(string_value=request.string_value.upper())

        handler = grpc.method_handlers_generic_handler(
            "test.Echo",
            {"Shout": grpc.unary_unary_rpc_method_handler(
                shout, request_deserializer=struct_pb2.Value.FromString,
                response_serializer=struct_pb2.Value.SerializeToString)})
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(max_workers=2))
        self.server.add_generic_rpc_handlers((handler,))
        address = "unix:" + os.path.join(folder, "echo.sock")
        assert self.server.add_insecure_port(address)
        self.server.start()
        self.channel = grpc.insecure_channel(address)
        self.shout = self.channel.unary_unary(
            "/test.Echo/Shout", request_serializer=struct_pb2.Value.SerializeToString,
            response_deserializer=struct_pb2.Value.FromString)

    def check(self):
        for i in range(20):
            value = self.struct_pb2.Value(string_value="hello %d" % i)
            assert self.shout(value, timeout=10).string_value == "HELLO %d" % i

    def stop(self):
        self.channel.close()
        self.server.stop(None).wait()


class ArclientSide:
    """Two ranks of one communicator in this process, through ctypes."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.arcGetLastError.restype = ctypes.c_char_p
        self.lib.arcCommInitRank.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, UniqueId, ctypes.c_int]
        self.lib.arcAllReduce.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int,
                                          ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
        self.lib.arcCommDestroy.argtypes = [ctypes.c_void_p]
        self.call("arcInit", None)
        unique = UniqueId()
        self.call("arcGetUniqueId", ctypes.byref(unique))
        self.comms = [ctypes.c_void_p() for _ in range(RANKS)]
        self.call("arcGroupStart")
        for rank, comm in enumerate(self.comms):
            self.call("arcCommInitRank", ctypes.byref(comm), RANKS, unique, rank)
        self.call("arcGroupEnd")

    def call(self, name, *arguments):
        code = getattr(self.lib, name)(*arguments)
        if code != 0:
            raise RuntimeError("%s: %s" % (name, self.lib.arcGetLastError(None).decode()))

    def check(self):
        buffers = [(ctypes.c_float * COUNT)(*[rank + i for i in range(COUNT)]) for rank in range(RANKS)]
        self.call("arcGroupStart")
        for comm, buffer in zip(self.comms, buffers):
            self.call("arcAllReduce", buffer, buffer, COUNT, FLOAT32, SUM, comm, None)
        self.call("arcGroupEnd")
        expected = [float(sum(rank + i for rank in range(RANKS))) for i in range(COUNT)]
        for buffer in buffers:
            assert list(buffer) == expected

    def stop(self):
        for comm in self.comms:
            self.call("arcCommDestroy", comm)
        self.call("arcFinalize")


def main():
    order, library, arcommd = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="arc") as folder:
        daemon = start_daemon(arcommd, folder)
        try:
            if order == "grpc-first":
                theirs = GrpcSide(folder)
                theirs.check()
                ours = ArclientSide(library)
            else:
                ours = ArclientSide(library)
                ours.check()
                theirs = GrpcSide(folder)
            for _ in range(3):
                theirs.check()
                ours.check()
            ours.stop()
            theirs.check()
            theirs.stop()
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(20)
    print("ok:", order)


if __name__ == "__main__":
    main()
