"""What Spark does with the exporter's history: ingest, rollups, verdicts, expectations, report."""

import warnings

# Nothing here uses pandas; pyspark warns of a newer one as soon as it is imported.
warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
