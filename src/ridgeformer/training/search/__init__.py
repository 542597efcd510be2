"""Our protocol: from a problem, a family and a depth to a model, with nothing to tune."""
