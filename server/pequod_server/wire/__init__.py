"""What the server needs of gRPC around its calls: interceptors, requests, statuses."""
