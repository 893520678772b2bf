"""Real datasets as populations: from the hub by default, from a folder of JSONL files with a data directory."""
