"""Where history lies: a folder of this host or a prefix in object storage, behind the same few operations.

All that is done in object storage is sure without a rename: an object appears whole or not at all, is replaced at
once, and whoever lists or reads after that sees it (S3, Google Cloud Storage and Azure promise so).
"""
