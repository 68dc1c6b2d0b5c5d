"""What scores candidates: features, pruning models, cost models, their training and their host."""
