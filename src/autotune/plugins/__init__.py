"""Finding, checking, creating and describing parts."""
