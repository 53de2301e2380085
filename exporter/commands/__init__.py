"""The commands other than `serve` and `once`. Each is imported when it is called."""
