"""The commands beyond `serve` and `once`, each imported when it is called."""
