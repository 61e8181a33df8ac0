"""The line that a finding names: how often it is the faulty one, of all sets."""
