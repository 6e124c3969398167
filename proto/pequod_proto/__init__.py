"""Generated protobuf and gRPC code of `pequod.v1`; `make proto` makes it anew."""
