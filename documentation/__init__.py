"""Builds the documentation as a site: ``make docs``. Reference pages are made from the code at each build."""
