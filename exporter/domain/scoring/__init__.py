"""How unusual silences were -> thresholds that promise a rate of false alarms."""
