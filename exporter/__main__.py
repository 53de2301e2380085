"""``python -m exporter``."""

from exporter.cli import main

if __name__ == "__main__":
    main("python -m exporter")
