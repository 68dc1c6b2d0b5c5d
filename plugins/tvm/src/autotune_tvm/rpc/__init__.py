"""Programs on machines that run nothing but TVM's RPC server."""
