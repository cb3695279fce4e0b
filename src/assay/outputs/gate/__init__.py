"""The result of a gate in the formats that CI systems read."""
