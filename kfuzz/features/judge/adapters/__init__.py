"""kfuzz behind the interfaces of others' benchmarks, trainers and test suites."""
