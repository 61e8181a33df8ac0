"""What stands beside the core, found by `kfuzz.core.features`, imported by nothing."""
