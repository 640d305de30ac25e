"""The gRPC servers: `mts grpc`."""
