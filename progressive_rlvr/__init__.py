"""From a base model to a message: the staged pipeline, its engines, and verification that needs a model."""
