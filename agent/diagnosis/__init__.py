"""Which hosts of many are sick: rules over their metric records, and the baselines they are measured by."""
