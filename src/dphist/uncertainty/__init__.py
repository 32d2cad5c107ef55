"""How far released values may be from the true counts: the law of the noise, error models, calibration."""
