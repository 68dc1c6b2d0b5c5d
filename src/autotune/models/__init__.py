"""Models that score candidates: features, pruning and cost models, training and host."""
