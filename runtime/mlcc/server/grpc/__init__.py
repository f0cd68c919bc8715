"""KServe's Open Inference Protocol (v2) over gRPC: the service `inference.GRPCInferenceService`, in
front of the server's HTTP routes."""
