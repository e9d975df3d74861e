"""The RPC protocols that HTTP/1.1 carries: Connect's, and gRPC-Web.

rpc        POST /tandem.v1.Service/Method: picks the protocol by the content type
connect    Connect's unary calls and streams, in JSON and in protobuf
grpc_web   gRPC-Web, in binary and in base64
envelopes  the framing that both have
"""
